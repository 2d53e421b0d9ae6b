"""What people may write about NVIDIA GPUs: how they are found, how they are watched, what a container gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from fairlead.backends.strict import Seconds
from fairlead.model.health import CauseKind

# Faults of the program that ran, not of the GPU.
IGNORED_XIDS = (13, 31, 43, 45, 68, 109)


class Mig(StrEnum):
    """How GPUs that are cut into MIG instances are shown."""

    NONE = "none"  # as whole GPUs
    SINGLE = "single"  # each instance like a GPU; all of them must be of one kind
    MIXED = "mixed"  # each instance by its profile, beside whole GPUs


class Discovery(StrEnum):
    AUTO = "auto"
    NVML = "nvml"
    TEGRA = "tegra"


class Way(StrEnum):
    """How a container is told its devices."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"

    @property
    def cdi(self) -> bool:
        return self in {Way.CDI_ANNOTATIONS, Way.CDI_CRI}


class Ids(StrEnum):
    UUID = "uuid"
    INDEX = "index"


class Scope(StrEnum):
    """Whom a fault reaches."""

    INSTANCE = "instance"  # the MIG instance that the event names, else the GPU
    GPU = "gpu"  # the GPU and all that is cut from it
    NODE = "node"  # every GPU of the node


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class Cdi(_Part, frozen=True):
    directory: str = "/var/run/cdi"
    vendor: str = "k8s.device-plugin.nvidia.com"
    annotation_prefix: str = "cdi.k8s.io/"
    hook: str = "/usr/bin/nvidia-ctk"  # on the host
    feature_flags: tuple[str, ...] = ()
    disabled_hooks: tuple[str, ...] = ()


class Imex(_Part, frozen=True):
    channels: tuple[int, ...] = ()
    required: bool = False


class Mps(_Part, frozen=True):
    """MPS for shared GPUs. What a container gets for it stands in the rule; here is who looks after the daemons."""

    root: str = ""  # in the plugin's own view; empty: no MPS
    replicas: dict[str, int] = {}  # of each resource that is shared so
    devices: dict[str, tuple[str, ...]] = {}  # which GPUs a resource shares: id, index or model (with *); else all
    managed: bool = False  # the control daemons are our children; else they are only asked whether they are well
    keep: bool = False  # those that we started go on when we stop: pods may be using them


class Fault(_Part, frozen=True):
    """One line of the fault table. What is left out stays as the table has it."""

    kind: CauseKind | None = None
    scope: Scope | None = None
    hold: Seconds | None = None
    message: str = ""


class Health(_Part, frozen=True):
    ignored_xids: tuple[int, ...] | Literal["all"] = IGNORED_XIDS
    watched_xids: tuple[int, ...] = ()  # also if they are among the ignored
    faults: Mapping[str, Fault] = {}  # by code, such as xid-79
    event_wait: Seconds = Seconds(5)


class Options(_Part, frozen=True):
    discovery: Discovery = Discovery.AUTO
    mig: Mig = Mig.NONE
    driver_root: str = "/"  # on the host
    driver_root_mount: str = "/driver-root"  # the same, in the plugin's own view
    dev_root: str = ""  # on the host; empty: the driver root
    host_root: str = "/"  # where /sys, /proc and /dev are looked for
    ways: tuple[Way, ...] = (Way.ENVVAR,)
    ids: Ids = Ids.UUID
    nodes: bool = False  # device nodes in the answer, beside what the ways say
    gdrcopy: bool = False
    gds: bool = False
    mofed: bool = False
    imex: Imex = Imex()
    cdi: Cdi = Cdi()
    mps: Mps = Mps()
    health: Health = Health()
    deadline: Seconds = Seconds(20)  # for one look at all GPUs


def find_faults(options: Options) -> Iterator[str]:
    """What the types cannot say."""
    for key, path in (
        ("driverRootMount", options.driver_root_mount),
        ("hostRoot", options.host_root),
        ("cdi.directory", options.cdi.directory),
    ):
        if not path.startswith("/") or ".." in path.split("/"):
            yield f"{key}: {path!r} is not an absolute path without '..'"
    if any(channel != 0 for channel in options.imex.channels) or len(options.imex.channels) > 1:
        yield f"imex.channels: only [] or [0] can be given, not {list(options.imex.channels)}"
    if options.mps.managed and not options.mps.root:
        yield "mps.root: the control daemons need a directory"
    if options.mps.replicas and options.mig is Mig.MIXED:
        yield "mps: MIG instances of several kinds cannot be shared by MPS. Use time-slicing, or mig: none"
