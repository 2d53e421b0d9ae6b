"""What a configuration needs of the host, so that its unit allows that and nothing more. Pure; knows no systemd."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from posixpath import dirname, normpath
from typing import Any

from msgspec import Struct, to_builtins

from fairlead.backends.amd import spec as amd
from fairlead.backends.nvidia import spec as nvidia
from fairlead.config.load import Loaded, needs_cluster
from fairlead.config.spec import Config, Registration
from fairlead.kit.decoding import convert
from fairlead.model.errors import UsageError

RUNTIME = "/run/fairlead"
HOMES = ("/root", "/home", "/run/user")
OWN = frozenset({"amd", "nvidia", "paths", "sim"})
PRIVILEGED_PORTS = 1024


class Nodes(enum.Enum):
    """What is done with device nodes."""

    NONE = "none"
    SEEN = "seen"  # looked at; no node is opened
    OPENED = "opened"


class Needs(Struct, frozen=True):
    directories: tuple[tuple[str, int], ...]  # that it writes in, and their mode where they must be made
    nodes: Nodes = Nodes.NONE
    network: bool = False
    homes: bool = False  # reads something below a home directory
    shared_tmp: bool = False  # meets other programs in /tmp
    library: bool = False  # runs code that is not ours in its process: a driver's library, a backend of others
    programs: bool = False  # leaves other programs running beside it
    capabilities: tuple[str, ...] = ()
    start_s: float = 30.0  # a first scan takes no longer
    notes: tuple[str, ...] = ()  # what people should know before they rely on it


def find_needs(loaded: Loaded) -> Needs:
    config = loaded.config
    parts = [_of_backend(entry, loaded.source) for entry in config.backends]
    cluster = needs_cluster(config)
    directories = {path: mode for part in parts for path, mode in part.directories}
    directories |= dict(_own_directories(config))
    for path in directories:
        _check_path(path, loaded.source)
    nodes = [part.nodes for part in parts]
    capabilities = {one for part in parts for one in part.capabilities} | set(_port_capability(config.http.listen))
    return Needs(
        directories=tuple(sorted(directories.items())),
        nodes=Nodes.OPENED if Nodes.OPENED in nodes else Nodes.SEEN if Nodes.SEEN in nodes else Nodes.NONE,
        network=cluster or bool(config.http.listen) or any(part.network for part in parts),
        homes=any(in_home(text) for text in _texts(to_builtins(config, enc_hook=str)))
        or (cluster and not config.cluster.kubeconfig and not config.cluster.server),
        shared_tmp=any(part.shared_tmp for part in parts),
        library=any(part.library for part in parts),
        programs=any(part.programs for part in parts),
        capabilities=tuple(sorted(capabilities)),
        start_s=config.scan.deadline,
        notes=tuple(note for part in parts for note in part.notes),
    )


def _own_directories(config: Config) -> Iterator[tuple[str, int]]:
    kubelet = config.kubelet
    watched = kubelet.registration is Registration.WATCHER
    yield normpath(kubelet.watcher_directory if watched else kubelet.directory), 0o750
    if config.status.socket and (place := normpath(dirname(config.status.socket))) != RUNTIME:
        yield place, 0o755


def _of_backend(entry: Mapping[str, Any], source: str) -> Needs:
    kind = str(entry["kind"])
    own = {key: value for key, value in entry.items() if key not in {"kind", "name"}}
    if kind == "sim":
        return Needs(())
    if kind == "paths":
        return Needs((), Nodes.SEEN)
    if kind == "amd":
        ways = (gpus := convert(own, amd.Options, source)).ways
        return Needs(_specs(gpus.cdi.directory, any(way.value.startswith("cdi") for way in ways)), Nodes.SEEN)
    if kind == "nvidia":
        return _of_nvidia(convert(own, nvidia.Options, source))
    # What the code of others needs cannot be known: it is kept from the host's files, and from little else.
    note = f"backend {kind!r} is not ours: devices, network and programs are open to it. Close them with a drop-in"
    return Needs((), Nodes.OPENED, network=True, library=True, programs=True, notes=(note,))


def _of_nvidia(options: nvidia.Options) -> Needs:
    mps = options.mps
    directories = dict(_specs(options.cdi.directory, any(way.cdi for way in options.ways)))
    if mps.root:
        directories[normpath(mps.root)] = 0o755
    notes = []
    if options.driver_root_mount == "/driver-root":
        notes.append(
            "nvidia: driverRootMount (--driver-root-ctr-path) is /driver-root, a path of containers. "
            "On the host it is /, unless the driver is in a container"
        )
    return Needs(
        tuple(directories.items()),
        Nodes.OPENED,
        library=True,
        shared_tmp=bool(mps.clients),
        programs=mps.managed,
        capabilities=("CAP_SYS_ADMIN",) if mps.managed else (),  # the driver asks for it to set a compute mode
        notes=tuple(notes),
    )


def _specs(directory: str, wanted: bool) -> tuple[tuple[str, int], ...]:
    return ((normpath(directory), 0o755),) if wanted else ()


def _port_capability(listen: str) -> Iterator[str]:
    port = listen.rpartition(":")[2]
    if port.isdecimal() and 0 < int(port) < PRIVILEGED_PORTS:
        yield "CAP_NET_BIND_SERVICE"


def _check_path(path: str, source: str) -> None:
    if not path.startswith("/") or not path.isprintable():
        raise UsageError(
            f"{source}: {path!r} is not an absolute path; a service has no directory of its own to start in"
        )


def in_home(text: str) -> bool:
    """Whether it is a path that `ProtectHome=` hides."""
    return any(text == home or text.startswith(f"{home}/") for home in HOMES)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
