"""Kubeconfig files, as kubectl reads them. What we cannot do is refused by name, never ignored."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.credentials import EXEC_VERSIONS, Credentials, ExecPlugin, StaticToken, TokenFile
from fairlead.cluster.errors import NoAccess
from fairlead.cluster.tls import TlsConfig
from fairlead.kit import documents
from fairlead.kit.decoding import did_you_mean
from fairlead.model.errors import ConfigError
from fairlead.model.ports import Clock

# Errors about YAML quote tags and aliases. Here these may be a token without quotes around it.
_QUOTING = r"(the tag |no anchor |\*).*"
_UNQUOTED = "a value that begins with !, & or * must be in quotes"
LIMITS = documents.Limits(bytes=8 * 2**20, nodes=200_000, text=2**20)  # certificates are long


class _Spec(Struct, frozen=True, rename="kebab"):
    pass


class _Cluster(_Spec, frozen=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _EnvVar(Struct, frozen=True):
    name: str
    value: str = ""


class _Exec(Struct, frozen=True, rename="camel"):
    command: str = ""
    args: list[str] | None = None
    env: list[_EnvVar] | None = None
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False


class _User(_Spec, frozen=True):
    token: str = ""
    token_file: str = field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    impersonate: str = field(name="as", default="")
    auth_provider: Any = None
    exec: _Exec | None = None


class _Context(_Spec, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(Struct, frozen=True):
    name: str
    cluster: _Cluster = _Cluster()


class _NamedUser(Struct, frozen=True):
    name: str
    user: _User | None = None


class _NamedContext(Struct, frozen=True):
    name: str
    context: _Context = _Context()


class _File(_Spec, frozen=True):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


class _Known(Struct):
    """Several files together: the first to name something wins. Each thing remembers where relative paths begin."""

    clusters: dict[str, tuple[_Cluster, Path]] = field(default_factory=dict)
    users: dict[str, tuple[_User, Path]] = field(default_factory=dict)
    contexts: dict[str, _Context] = field(default_factory=dict)
    current: str = ""


def read_kubeconfig(files: str, context: str, environment: Mapping[str, str], clock: Clock) -> Access:
    """`files` may be several, with colons between them, as in $KUBECONFIG."""
    known = _Known()
    try:
        paths = [Path(one).expanduser() for one in files.split(":") if one]
        found = [path for path in paths if path.exists()]
    except (OSError, RuntimeError) as error:  # not readable, or the home of no user
        raise NoAccess(f"kubeconfig {files}: {getattr(error, 'strerror', None) or error}") from None
    if not found:
        raise NoAccess(f"kubeconfig {files}: there is no such file")
    for path in found:
        _add(known, path)
    source = ", ".join(map(str, found))
    name = context or known.current
    if not name:
        raise NoAccess(f"{source}: no context is chosen. Give one with --context. Known: {_listed(known.contexts)}")
    chosen = _pick(known.contexts, name, "context", source)
    cluster, cluster_root = _pick(known.clusters, chosen.cluster, "cluster", source)
    no_user: tuple[_User, Path] = (_User(), cluster_root)
    user, user_root = _pick(known.users, chosen.user, "user", source) if chosen.user else no_user
    where = f"{source}, context {name!r}"
    _refuse(cluster, user, where)
    trust = TlsConfig(
        ca_file=_path(cluster.certificate_authority, cluster_root) if not cluster.certificate_authority_data else "",
        ca_pem=_data(cluster.certificate_authority_data, "certificate-authority-data", where),
        cert_file=_path(user.client_certificate, user_root) if not user.client_certificate_data else "",
        key_file=_path(user.client_key, user_root) if not user.client_key_data else "",
        cert_pem=_data(user.client_certificate_data, "client-certificate-data", where),
        key_pem=_data(user.client_key_data, "client-key-data", where),
        insecure=cluster.insecure_skip_tls_verify,
    )
    if bool(trust.cert_pem) != bool(trust.key_pem):
        raise NoAccess(f"{where}: a client certificate and its key must both be files or both be data")
    server = parse_server(cluster.server, cluster.tls_server_name, f"{where}: the server of cluster {chosen.cluster!r}")
    credentials = _credentials(user, user_root, environment, clock, where)
    return Access(server, trust, credentials, namespace=chosen.namespace or "default", source=where)


def _add(known: _Known, path: Path) -> None:
    try:
        file = msgspec.convert(documents.read(path, LIMITS) or {}, _File)
    except ConfigError as error:
        raise NoAccess(re.sub(_QUOTING, _UNQUOTED, str(error))) from None
    except msgspec.ValidationError as error:  # names the place and the types, never the value
        raise NoAccess(f"{path}: {error}") from None
    root = path.absolute().parent
    for cluster in file.clusters or ():
        known.clusters.setdefault(cluster.name, (cluster.cluster, root))
    for user in file.users or ():
        known.users.setdefault(user.name, (user.user or _User(), root))
    for context in file.contexts or ():
        known.contexts.setdefault(context.name, context.context)
    known.current = known.current or file.current_context


def _pick(known: Mapping[str, Any], name: str, kind: str, source: str) -> Any:
    if name not in known:
        raise NoAccess(f"{source}: no {kind} {name!r}{did_you_mean(name, known)}")
    return known[name]


def _listed(known: Mapping[str, Any]) -> str:
    return ", ".join(sorted(known)) or "none"


def _refuse(cluster: _Cluster, user: _User, where: str) -> None:
    """What kubectl can do and we cannot."""
    refused = (
        (cluster.proxy_url, "proxy-url: Fairlead does not go through proxies"),
        (user.username or user.password, "username and password: no API server since 1.19 takes them"),
        (user.auth_provider, "auth-provider: kubectl has dropped it. Use an exec plugin or a token"),
        (user.impersonate, "as: Fairlead does not impersonate other users. Use that account's own credentials"),
        (user.exec and user.exec.provide_cluster_info, "exec.provideClusterInfo: not supported"),
    )
    for given, reason in refused:
        if given:
            raise NoAccess(f"{where}: {reason}")
    if cluster.insecure_skip_tls_verify and (cluster.certificate_authority or cluster.certificate_authority_data):
        raise NoAccess(f"{where}: insecure-skip-tls-verify contradicts the certificate authority beside it")


def _credentials(
    user: _User, root: Path, environment: Mapping[str, str], clock: Clock, where: str
) -> Credentials | None:
    if user.exec is not None:
        program = user.exec
        if program.api_version not in EXEC_VERSIONS:
            raise NoAccess(
                f"{where}: exec.apiVersion {program.api_version!r:.60} is none of {', '.join(EXEC_VERSIONS)}"
            )
        if not program.command:
            raise NoAccess(f"{where}: exec.command is missing")
        # A path is beside the kubeconfig, a bare word is looked up in $PATH.
        command = _path(program.command, root) if "/" in program.command else program.command
        info = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        env = {**environment, **{one.name: one.value for one in program.env or ()}}
        env["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
        return ExecPlugin([command, *(program.args or ())], env, program.api_version, clock, program.install_hint)
    if user.token_file:  # wins over token, as with kubectl
        return TokenFile(Path(_path(user.token_file, root)))
    return StaticToken(user.token) if user.token else None


def _path(text: str, root: Path) -> str:
    return str(root / text) if text else ""


def _data(text: str, key: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NoAccess(f"{where}: {key} is not base64") from None
