"""The way to an API server: its address, whom to trust, our credentials. In a pod everything is in known files.

A kubeconfig is read in `kubeconfig.py`, which loads YAML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from fairlead.cluster.credentials import Credential, Credentials, StaticToken, TokenFile
from fairlead.cluster.errors import NoAccess
from fairlead.kit import files

if TYPE_CHECKING:
    import ssl

    from fairlead.cluster.tls import TlsConfig
    from fairlead.model.ports import Clock

_SUCH_AS = "Give one such as https://10.0.0.1:6443"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Server(Struct, frozen=True):
    host: str  # a name, or an address without brackets
    port: int
    prefix: str = ""  # some gateways keep the API under a path
    tls: bool = True
    name: str = ""  # what its certificate must say; empty: the host

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_private(self) -> bool:
        """Whether others cannot read what is sent: it is encrypted, or stays on this host, as with `kubectl proxy`."""
        return (
            self.tls or self.host in {"localhost", "::1"} or re.fullmatch(r"127(\.\d{1,3}){3}", self.host) is not None
        )

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"


def parse_server(text: str, name: str = "", where: str = "server") -> Server:
    """`https://host:6443/prefix`. The text is never quoted: one that is malformed may hold a password."""
    try:
        found = urlsplit(text)
        port = found.port
    except ValueError:
        raise NoAccess(f"{where}: its host or its port is malformed. {_SUCH_AS}") from None
    if found.scheme not in {"https", "http"} or not found.hostname:
        raise NoAccess(f"{where}: it must be an address, with https:// and a host. {_SUCH_AS}")
    if found.username is not None or found.query or found.fragment:
        raise NoAccess(f"{where}: its address must not hold a user, a query or a fragment. {_SUCH_AS}")
    # An @ in the path: a user with a password that holds a slash.
    if not found.path.isascii() or not found.path.isprintable() or {" ", "@"} & set(found.path):
        raise NoAccess(f"{where}: the path of its address holds characters that paths may not have. {_SUCH_AS}")
    tls = found.scheme == "https"
    return Server(found.hostname, port or (443 if tls else 80), found.path.rstrip("/"), tls, name)


class Access:
    """Everything that a connection needs. Certificates and tokens are looked at again as they change."""

    def __init__(
        self,
        server: Server,
        trust: TlsConfig | None = None,
        credentials: Credentials | None = None,
        *,
        namespace: str = "default",
        source: str = "",
    ) -> None:
        """Raises NoAccess when credentials would be sent in plain text."""
        if credentials is not None and not server.is_private:
            raise NoAccess(
                f"{source or 'the API server'}: credentials are not sent to {server}, where others could read them. "
                "Use https, or plain http on this host only, such as http://127.0.0.1:8001 of kubectl proxy"
            )
        self.server = server
        self.namespace = namespace
        self.source = source  # for people: which file, which context
        self._trust = trust
        self._credentials = credentials or StaticToken()
        self._context: tuple[object, ssl.SSLContext] | None = None

    async def credential(self) -> Credential:
        return await self._credentials.get()

    def forget(self) -> None:
        self._credentials.forget()
        self._context = None

    def context(self, credential: Credential) -> ssl.SSLContext | None:
        """Made once, and again when a file or a certificate has changed. None: no TLS."""
        if not self.server.tls:
            return None
        from msgspec.structs import replace  # noqa: PLC0415 - with TLS only

        from fairlead.cluster.tls import TlsConfig, make_context  # noqa: PLC0415 - ssl costs megabytes

        trust = self._trust or TlsConfig()
        if credential.cert_pem:
            trust = replace(trust, cert_pem=credential.cert_pem, key_pem=credential.key_pem)
        stamp = (trust.stamp(), trust.cert_pem)
        if self._context is None or self._context[0] != stamp:
            self._context = (stamp, make_context(trust))
        return self._context[1]


def in_cluster(environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> Access | None:
    """The way that every pod has, or None outside of one."""
    from fairlead.cluster.tls import TlsConfig  # noqa: PLC0415 - as above

    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return None
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise NoAccess(f"KUBERNETES_SERVICE_PORT is {port!r:.40}, which is no port")
    token, ca = directory / "token", directory / "ca.crt"
    if not token.exists():
        raise NoAccess(
            f"{token}: there is no such file. Give the pod a service account with automountServiceAccountToken: true, "
            "or a kubeconfig"
        )
    try:
        namespace = files.read_text(directory / "namespace", files.SMALL_BYTES).strip()
    except OSError:
        namespace = "default"
    server = Server(host.strip("[]"), int(port))
    return Access(
        server, TlsConfig(ca_file=str(ca)), TokenFile(token), namespace=namespace, source="this pod's account"
    )


def find_access(
    environment: Mapping[str, str],
    clock: Clock,
    *,
    kubeconfig: str = "",
    context: str = "",
    directory: Path = SERVICE_ACCOUNT,
) -> Access:
    """What was named, else what $KUBECONFIG names, else this pod's account, else ~/.kube/config."""
    files = kubeconfig or environment.get("KUBECONFIG", "")
    home = Path(environment.get("HOME") or "/") / ".kube" / "config"
    # Manifests of others set $KUBECONFIG to a file of the node that their pods do not have, and mean the account.
    named = kubeconfig or context or any(_is_there(Path(file)) for file in files.split(":") if file)
    if not named and (found := in_cluster(environment, directory)) is not None:
        return found
    if not files and not _is_there(home):
        raise NoAccess(
            "nothing says where the API server is: this is no pod with a service account, $KUBECONFIG is not set, "
            f"and {home} does not exist. Give a file with --kubeconfig"
        )
    from fairlead.cluster.kubeconfig import read_kubeconfig  # noqa: PLC0415 - loads YAML

    return read_kubeconfig(files or str(home), context, environment, clock)


def _is_there(path: Path) -> bool:
    try:
        return path.expanduser().exists()
    except (OSError, RuntimeError):  # the home of another user, or of no user
        return False
