"""Site: what of NVIDIA's files this host has, as far as answers to the kubelet depend on it.

Looked at once per scan, so that what a container gets can be decided later without touching a file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from fairlead.backends.nvidia.snapshot import Platform
from fairlead.backends.nvidia.spec import Options
from fairlead.model.errors import BackendError

NEEDED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")  # no program can use a GPU without them
CONTROL_NODES = (*NEEDED_NODES, "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
IMEX_NODE = "/dev/nvidia-caps-imex-channels/channel{}"
# What a flag adds to every container: the nodes of its driver.
FEATURE_NODES = {
    "gdrcopy": ("/dev/gdrdrv",),
    "gds": ("/dev/nvidia-fs*",),
    "mofed": ("/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"),
}


class NodeFacts(Struct, frozen=True):
    major: int
    minor: int
    mode: int  # permission bits
    gid: int = 0


class HostNodes(Struct, frozen=True):
    platform: Platform = Platform.NVML
    control_nodes: tuple[str, ...] = ()
    imex_channels: tuple[int, ...] = ()
    features: tuple[str, ...] = ()  # those of FEATURE_NODES that are enabled and have nodes
    missing: frozenset[str] = frozenset()  # nodes that were looked for and are not there


ReadNode = Callable[[Path], NodeFacts | None]


def read_node(path: Path) -> NodeFacts | None:
    """The facts of a character device; None if it is none, or not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISCHR(found.st_mode):
        return None
    mode = stat.S_IMODE(found.st_mode)
    return NodeFacts(os.major(found.st_rdev), os.minor(found.st_rdev), mode, found.st_gid)


def below(root: str, path: str) -> Path:
    """A path of another root, as it is reached from here."""
    return Path(root or "/") / path.lstrip("/")


def enabled_features(options: Options) -> tuple[str, ...]:
    """The flags that are on, in the order in which containers get their devices."""
    return tuple(name for name in FEATURE_NODES if getattr(options, name))


def dev_mount(options: Options) -> str:
    """Where /dev of the driver is, seen from here: below the driver's root if it has one, else the host's own."""
    own = below(options.driver_root_mount, "dev")
    return options.driver_root_mount if own.is_dir() else options.host_root


def find_host_nodes(
    options: Options, platform: Platform, read: ReadNode = read_node, wanted: Iterable[str] = ()
) -> HostNodes:
    """What is there now. BackendError when an IMEX channel is required and missing. `wanted`: nodes to look for."""
    roots = dict.fromkeys((dev_mount(options), options.host_root))

    def has(path: str) -> bool:
        return any(read(below(root, path)) for root in roots)

    channels = tuple(channel for channel in options.imex.channels if has(IMEX_NODE.format(channel)))
    if options.imex.required and (missing := set(options.imex.channels) - set(channels)):
        node = IMEX_NODE.format(min(missing))
        raise BackendError(
            f"requested IMEX channel channel{min(missing)} does not exist: {node} is no character device in any of "
            f"{', '.join(roots)}. Create it (nvidia-modprobe -c 0), or set imex.required to false"
        )
    if platform not in {Platform.NVML, Platform.NODES}:
        return HostNodes(platform, imex_channels=channels)
    return HostNodes(
        platform,
        control_nodes=tuple(node for node in CONTROL_NODES if has(node)),
        imex_channels=channels,
        features=tuple(
            name for name in enabled_features(options) if any(find_nodes(dev_mount(options), FEATURE_NODES[name], read))
        ),
        missing=frozenset(path for path in wanted if not has(path)),
    )


def find_nodes(root: str, patterns: tuple[str, ...], read: ReadNode = read_node) -> tuple[tuple[str, NodeFacts], ...]:
    """The character devices below a root that match, by their path in that root."""
    found: dict[str, NodeFacts] = {}
    base = Path(root or "/")
    for pattern in patterns:
        for path in sorted(base.glob(pattern.lstrip("/"))):
            facts = read(path)
            if facts is not None:
                found[f"/{path.relative_to(base)}"] = facts
    return tuple(found.items())
