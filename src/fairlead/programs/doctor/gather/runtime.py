"""Reads the container runtime's configuration and asks its version; reads CDI specs and the pipes of MPS."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fairlead.config.spec import Config
from fairlead.kit import documents, files
from fairlead.kit.hostroot import HostRoot
from fairlead.model.errors import ConfigError
from fairlead.programs.doctor.facts import CdiFile, Missing, MpsPipe, Runtime
from fairlead.programs.doctor.gather.limits import SPECS_MAX
from fairlead.wire import cri
from fairlead.wire.rpc import Channel, Limits, RpcError

CONFIGS = (
    "/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/etc/k0s/containerd.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
)
SOCKETS = ("/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock")
# The tables of version 2 and of version 3 of the file.
PLUGINS = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
IMPORTS_MAX = 16
CDI_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
ASK_S = 2.0
ABSENT_MAX = 64


def read_runtime(root: HostRoot) -> Runtime | Missing:
    """Of containerd. Raises OSError or ValueError for a file that cannot be used."""
    path = next((place for place in CONFIGS if root.real(place) is not None), None)
    if path is None:
        return Missing(f"none of {', '.join(map(root.outside, CONFIGS))} is there: mount it, or run it on the host")
    handlers: dict[str, None] = {}
    default, cdi, ownership, systemd = "runc", None, False, False
    for table in _tables(root, path):
        containerd = _below(table, "containerd")
        runtimes = _below(containerd, "runtimes")
        handlers |= dict.fromkeys(map(str, runtimes))
        default = str(containerd.get("default_runtime_name") or default)
        cdi = table["enable_cdi"] is True if "enable_cdi" in table else cdi
        ownership |= table.get("device_ownership_from_security_context") is True
        options = _below(_below(runtimes, "runc"), "options")
        systemd |= options.get("SystemdCgroup") is True
    return Runtime(
        "containerd",
        root.outside(path),
        handlers=tuple(handlers),
        default=default,
        cdi=cdi,
        ownership=ownership,
        systemd_cgroup=systemd,
    )


def _tables(root: HostRoot, path: str) -> Iterator[Mapping[str, Any]]:
    """The runtime's tables, of the file and of those that it imports."""
    whole = _toml(root, path)
    imports = whole.get("imports")
    patterns = [str(one) for one in imports][:IMPORTS_MAX] if isinstance(imports, list) else []
    found = [one for pattern in patterns if pattern.startswith("/") for one in root.glob(pattern)]
    for each in (whole, *(_toml(root, one) for one in found[:IMPORTS_MAX])):
        plugins = _below(each, "plugins")
        yield from (_below(plugins, name) for name in PLUGINS if name in plugins)


def _toml(root: HostRoot, path: str) -> dict[str, Any]:
    real = root.real(path)
    try:
        return tomllib.loads(files.read_text(root.outside(real or path)))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{root.outside(path)}: {error}") from None


def _below(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = table.get(key)
    return found if isinstance(found, dict) else {}


async def ask_version(root: HostRoot) -> str:
    """The version that the runtime tells; empty where it cannot be asked."""
    path = next((each for each in map(root.outside, SOCKETS) if os.path.exists(each)), "")  # noqa: ASYNC240, PTH110 - stats
    if not path:
        return ""
    try:
        channel = await Channel.connect(path, timeout_s=ASK_S, limits=Limits(message_bytes=64 * 1024))
        try:
            return (await channel.unary(cri.VERSION, cri.VersionRequest(), timeout_s=ASK_S)).runtime_version[:64]
        finally:
            await channel.close()
    except (TimeoutError, RpcError, OSError, ValueError):
        return ""


# --- CDI --------------------------------------------------------------------------------------------------------------


def read_specs(root: HostRoot, more: tuple[str, ...] = ()) -> tuple[CdiFile, ...]:
    directories = dict.fromkeys((*CDI_DIRECTORIES, *more))
    paths = [
        f"{directory}/{name}"
        for directory in directories
        for name in root.names(directory)
        if name.endswith((".json", ".yaml")) and not name.startswith(".")
    ]
    unique = {root.real(path) or path: path for path in paths}  # /var/run is /run
    return tuple(_spec(root, path) for path in list(unique.values())[:SPECS_MAX])


def _spec(root: HostRoot, path: str) -> CdiFile:
    try:
        text = files.read_text(root.outside(root.real(path) or path))
        spec = documents.parse(text, path, loose=True)
    except OSError as error:
        return CdiFile(path, problem=error.strerror or str(error))
    except ConfigError as error:
        return CdiFile(path, problem=error.problems[0] if error.problems else str(error))
    if not isinstance(spec, dict) or not isinstance(spec.get("kind"), str):
        return CdiFile(path, problem="it has no kind, and is no CDI spec")
    kind = spec["kind"][:256]
    devices = [one for one in _list(spec, "devices") if isinstance(one.get("name"), str)]
    paths = {host for part in (spec, *devices) for host in _paths(part)}
    absent = sorted(host for host in paths if host.startswith("/") and root.real(host) is None)
    return CdiFile(path, kind, tuple(f"{kind}={one['name']}" for one in devices), tuple(absent[:ABSENT_MAX]))


def _paths(part: Mapping[str, Any]) -> Iterator[str]:
    """What a spec takes from the host."""
    edits = _below(part, "containerEdits")
    for node in _list(edits, "deviceNodes"):
        yield str(node.get("hostPath") or node.get("path") or "")
    for mount in _list(edits, "mounts"):
        yield str(mount.get("hostPath") or "")


def _list(part: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = part.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


# --- MPS --------------------------------------------------------------------------------------------------------------


def read_pipes(config: Config) -> tuple[MpsPipe, ...]:
    """The pipe directory of each control daemon that the configuration names, as this process sees it."""
    pipes = []
    for entry in config.backends:
        mps = _below(entry, "mps")
        if mps.get("clients"):
            pipes.append(_pipe("this node", str(mps.get("pipe") or "/tmp/nvidia-mps")))  # noqa: S108 - NVIDIA's default
        elif mps.get("root"):
            root, replicas = str(mps["root"]).rstrip("/"), _below(mps, "replicas")
            pipes += [_pipe(str(name), f"{root}/{name}/pipe") for name in replicas]
    return tuple(pipes[:SPECS_MAX])


def _pipe(resource: str, directory: str) -> MpsPipe:
    try:
        found = Path(directory, "control").stat()
    except OSError as error:
        return MpsPipe(resource, directory, f"control: {error.strerror}")
    if stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode):
        return MpsPipe(resource, directory)
    return MpsPipe(resource, directory, f"control is {files.kind_of(found.st_mode)}, and no pipe")
