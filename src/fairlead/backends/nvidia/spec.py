"""What people may write about NVIDIA GPUs: how they are found, how they are watched, what a container gets."""

# Annotations are objects here, not text: text would be evaluated at each start (docs/decisions/0008-speed.md).
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec

from fairlead.inject.cdi import vendor_problem
from fairlead.kit.decoding import Seconds
from fairlead.model.errors import InvalidName
from fairlead.model.health import CauseKind
from fairlead.model.names import parse_resource_name

REPLICAS_MAX = 65536  # as in a rule
# Faults of the program that ran, not of the GPU.
IGNORED_XIDS = (13, 31, 43, 45, 68, 109)


class MigStrategy(StrEnum):
    """How GPUs that are cut into MIG instances are shown."""

    NONE = "none"  # as whole GPUs
    SINGLE = "single"  # each instance like a GPU; all of them must be of one kind
    MIXED = "mixed"  # each instance by its profile, beside whole GPUs


class Discovery(StrEnum):
    AUTO = "auto"
    NVML = "nvml"
    TEGRA = "tegra"
    NODES = "nodes"  # by the device nodes alone, without NVML
    ANY = "any"  # by NVML; where its library is not found, by the device nodes


class DeviceListStrategy(StrEnum):
    """How the container runtime learns which devices a container gets."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"

    @property
    def cdi(self) -> bool:
        return self in {DeviceListStrategy.CDI_ANNOTATIONS, DeviceListStrategy.CDI_CRI}


class Ids(StrEnum):
    UUID = "uuid"
    INDEX = "index"


class Naming(StrEnum):
    """What the id of a device is."""

    UUID = "uuid"
    MINOR = "minor"  # nvidia0, and nvidia0/gi1 for a MIG instance


class Scope(StrEnum):
    """Whom a fault reaches."""

    INSTANCE = "instance"  # the MIG instance that the event names, else the GPU
    GPU = "gpu"  # the GPU and all that is cut from it
    NODE = "node"  # every GPU of the node


class Evidence(StrEnum):
    """What shows that a GPU was reset."""

    DRIVER = "driver"  # the kernel module was loaded anew
    PCI = "pci"  # the GPU was taken off the bus, or from its driver, and came back
    ANSWER = "answer"  # it did not answer, or asked for a reset, and answers again
    ROWS = "rows"  # memory rows or pages waited for a reset, and wait no more
    ACTION = "action"  # the driver asked for a recovery action, and asks no more


def _doc(text: str, *examples: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, examples=list(examples) or None)


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class Cdi(_Part, frozen=True):
    directory: Annotated[str, _doc("Where container runtimes look for specs.")] = "/var/run/cdi"
    vendor: Annotated[str, _doc("The vendor in all names.")] = "k8s.device-plugin.nvidia.com"
    annotation_prefix: Annotated[str, _doc("In front of the annotation of cdi-annotations.")] = "cdi.k8s.io/"
    hook: Annotated[str, _doc("NVIDIA's hook program, on the host.")] = "/usr/bin/nvidia-ctk"
    feature_flags: Annotated[tuple[str, ...], _doc("What specs have beyond the usual; see the guide.")] = ()
    disabled_hooks: Annotated[tuple[str, ...], _doc("Hooks that are left out, by name, or all.", ["all"])] = ()
    all: Annotated[bool, _doc("Whether the spec has a device named all, which is every GPU of the node.")] = False


class Imex(_Part, frozen=True):
    channels: Annotated[tuple[int, ...], _doc("Channels that every container gets: none, or 0.", [0])] = ()
    required: Annotated[bool, _doc("Whether a scan fails while a channel is missing.")] = False


class Mps(_Part, frozen=True):
    """MPS for shared GPUs. What a container gets for it is part of the rule; this is who runs the daemons."""

    root: Annotated[str, _doc("Directory of pipes and logs, in the plugin's own view. Empty: no MPS.", "/mps")] = ""
    replicas: Annotated[
        dict[str, int], _doc("How many containers share a GPU, for each resource.", {"nvidia.com/gpu": 4})
    ] = {}
    devices: Annotated[
        dict[str, tuple[str, ...]],
        _doc(
            "Which GPUs a resource shares: ids, indexes or models (with *). Else all.", {"nvidia.com/gpu": ["0", "1"]}
        ),
    ] = {}
    managed: Annotated[
        bool, _doc("Whether the control daemons are started and stopped here. Else they are asked how they are.")
    ] = False
    clients: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=REPLICAS_MAX,
            description="How many containers share a GPU through one control daemon that another program runs. Each "
            "gets its limits for its slots in its environment. 0: none. Instead of replicas.",
        ),
    ] = 0
    pipe: Annotated[str, _doc("With clients: the pipe directory of that daemon.")] = "/tmp/nvidia-mps"  # noqa: S108 - NVIDIA's default
    control: Annotated[str, _doc("With clients: the program that asks that daemon how it is.")] = (
        "nvidia-cuda-mps-control"
    )
    keep: Annotated[bool, _doc("Whether daemons that were started here go on at the end: pods may be using them.")] = (
        False
    )


class Fault(_Part, frozen=True):
    """One line of the fault table. What is left out stays as the table has it."""

    kind: Annotated[CauseKind | None, _doc("What must happen before the device is trusted again.")] = None
    scope: Annotated[Scope | None, _doc("Whom it reaches: the MIG instance that is named, the GPU, the node.")] = None
    hold: Annotated[Seconds | None, _doc("For how long the device stays away at least.", "10m")] = None
    message: Annotated[str, _doc("What people read.")] = ""
    cured_by: Annotated[
        tuple[Evidence, ...] | None,
        _doc("Signs of a reset, any of which ends it. []: clean probes end it after the hold.", ["driver", "rows"]),
    ] = None


class Health(_Part, frozen=True):
    ignored_xids: Annotated[
        tuple[int, ...] | Literal["all"], _doc("XIDs that change nothing: faults of programs. all: no check at all.")
    ] = IGNORED_XIDS
    watched_xids: Annotated[tuple[int, ...], _doc("XIDs that count also if they are among the ignored.", [31])] = ()
    only_xids: Annotated[
        tuple[int, ...] | None,
        _doc("The only XIDs that withdraw a device, instead of all but the ignored. Probes count as ever.", [48]),
    ] = None
    faults: Annotated[
        Mapping[str, Fault], _doc("Changed lines of the fault table, by code.", {"xid-94": {"hold": "10m"}})
    ] = {}
    event_wait: Annotated[Seconds, _doc("How long one wait for the driver's events lasts. They end it.")] = Seconds(5)


class Partition(_Part, frozen=True):
    """How each GPU must be cut into MIG instances."""

    profile: Annotated[str, _doc("The profile of all instances.", "3g.20gb")]
    count: Annotated[int, msgspec.Meta(ge=1, le=64, description="How many of them each GPU must have.")]


class Options(_Part, frozen=True):
    discovery: Annotated[
        Discovery,
        _doc(
            "How GPUs are looked for. auto: NVML, and a Tegra system by its files. nodes: by the device nodes alone, "
            "without NVML and without health. any: by NVML, or by the nodes where there is no library of NVML."
        ),
    ] = Discovery.AUTO
    naming: Annotated[
        Naming, _doc("What the id of a device is: its UUID, or its minor number: nvidia0, nvidia0/gi1 for an instance.")
    ] = Naming.UUID
    partition: Annotated[
        Partition | None,
        _doc(
            "With mig: mixed: how each GPU must be cut. One that is cut otherwise is not offered.",
            {"profile": "3g.20gb", "count": 2},
        ),
    ] = None
    instance_nodes: Annotated[
        bool,
        _doc("With mig: none: whether a GPU brings the nodes of its MIG instances, as a share of a GPU in a VM does."),
    ] = False
    mig: Annotated[
        MigStrategy,
        _doc(
            "What is shown of GPUs that are cut into MIG instances. none: whole GPUs. single: each instance like a "
            "GPU, and all must be of one kind. mixed: each instance with its profile, beside whole GPUs."
        ),
    ] = MigStrategy.NONE
    driver_root: Annotated[str, _doc("The driver's root directory, on the host.", "/run/nvidia/driver")] = "/"
    driver_root_mount: Annotated[str, _doc("The same directory, in the plugin's own view.")] = "/driver-root"
    dev_root: Annotated[str, _doc("Below it is /dev, on the host. Empty: the driver's root.")] = ""
    host_root: Annotated[str, _doc("Below it are /sys, /proc and /dev, in the plugin's own view.")] = "/"
    ways: Annotated[
        tuple[DeviceListStrategy, ...],
        _doc(
            "How the container runtime learns the devices of a container; several ways at once if need be. []: not at "
            "all. With nodes, these are then all that a container gets, and a scan waits for those of the driver.",
            ["envvar", "cdi-cri"],
        ),
    ] = (DeviceListStrategy.ENVVAR,)
    ids: Annotated[Ids, _doc("By what the devices are named there.")] = Ids.UUID
    nodes: Annotated[bool, _doc("Whether the answer has device nodes too, beside what the ways say.")] = False
    permissions: Annotated[str, _doc("Of these nodes: any of r (read), w (write), m (make node).", "mrw")] = "rw"
    gdrcopy: Annotated[bool, _doc("Whether containers get GDRCopy.")] = False
    gds: Annotated[bool, _doc("Whether containers get GPUDirect Storage.")] = False
    mofed: Annotated[bool, _doc("Whether containers get Mellanox' RDMA devices.")] = False
    imex: Annotated[Imex, _doc("IMEX channels, for memory that is shared between nodes.")] = Imex()
    cdi: Annotated[Cdi, _doc("CDI specs, where a way needs them.")] = Cdi()
    mps: Annotated[Mps, _doc("Control daemons, where a rule shares GPUs by MPS.")] = Mps()
    health: Annotated[Health, _doc("Which faults count.")] = Health()
    deadline: Annotated[Seconds, _doc("For one look at all GPUs.")] = Seconds(20)


def find_faults(options: Options) -> Iterator[str]:
    """What the types cannot say."""
    for key, path in (
        ("driverRootMount", options.driver_root_mount),
        ("hostRoot", options.host_root),
        ("cdi.directory", options.cdi.directory),
        ("mps.root", options.mps.root or "/"),
        ("mps.pipe", options.mps.pipe),
    ):
        if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
            yield f"{key}: {path!r} is not an absolute path without '..'"
    if problem := vendor_problem(options.cdi.vendor):
        yield f"cdi.vendor: {problem}"
    for key, named in (("replicas", options.mps.replicas), ("devices", options.mps.devices)):
        for resource in named:
            try:
                parse_resource_name(resource)  # it is a directory below the root too
            except InvalidName as error:
                yield f"mps.{key}: {error}"
    for resource, replicas in options.mps.replicas.items():
        if not 1 <= replicas <= REPLICAS_MAX:
            yield f"mps.replicas: {resource} has {replicas}. Give 1 to {REPLICAS_MAX}"
    if any(channel != 0 for channel in options.imex.channels) or len(options.imex.channels) > 1:
        yield f"imex.channels: only [] or [0] can be given, not {list(options.imex.channels)}"
    if not options.permissions or set(options.permissions) - set("rwm"):
        yield f"permissions: {options.permissions!r} must be some of r, w and m"
    if options.partition is not None and options.mig is not MigStrategy.MIXED:
        yield "partition: it needs mig: mixed, which shows the instances"
    if options.mps.clients and (options.mps.replicas or options.mps.managed):
        yield "mps.clients: the daemon is another program's. Leave out mps.replicas and mps.managed"
    if options.mps.managed and not options.mps.root:
        yield "mps.root: the control daemons need a directory"
    if options.mps.replicas and options.mig is MigStrategy.MIXED:
        yield "mps: MIG instances of several kinds cannot be shared by MPS. Use time-slicing, or mig: none"
