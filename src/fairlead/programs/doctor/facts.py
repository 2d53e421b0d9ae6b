"""What the doctor knows of a node when its checks begin. Plain values: a test plants a fault by changing one.

A fact that could not be had is `Missing`, with what was lacking. It is never an empty value: "no pod" and "the pods are
not known" lead to different words.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from fairlead.config.spec import Config
from fairlead.fronts.checkpoint import Checkpoint
from fairlead.model.holdings import Holdings
from fairlead.observe.plan import Plan
from fairlead.observe.status import Status


class Missing(Struct, frozen=True):
    why: str


NOT_ASKED = Missing("it was not asked for")


class Where(Struct, frozen=True):
    """From where the doctor looks."""

    root: str = "/"  # the host's files are below it
    uid: int = 0
    in_pod: bool = False
    node: str = ""
    now_s: float = 0.0


class SocketState(StrEnum):
    ANSWERS = "answers"
    ABSENT = "absent"
    NO_SOCKET = "no socket"
    REFUSED = "refused"  # a file without a process behind it
    DENIED = "denied"
    SILENT = "silent"  # a connection is not taken in time


class SocketFile(Struct, frozen=True):
    path: str
    state: SocketState
    detail: str = ""


class PluginDirectory(Struct, frozen=True):
    path: str
    there: bool
    kubelet: SocketFile
    others: tuple[SocketFile, ...] = ()  # sockets of plugins


class KubeletProcess(Struct, frozen=True):
    pid: int
    root_dir: str = "/var/lib/kubelet"
    config: str = ""  # its file, on the host
    label: str = ""  # of SELinux


class KubeletConfig(Struct, frozen=True):
    topology_policy: str = "none"
    cgroup_driver: str = "cgroupfs"


class DiskCheckpoint(Struct, frozen=True):
    """The kubelet's own file. `problem`: it is there and cannot be used."""

    path: str
    there: bool = True
    content: Checkpoint | None = None
    problem: str = ""


class Refusal(Struct, frozen=True):
    resource: str
    reason: str


class DaemonFacts(Struct, frozen=True):
    socket: str
    status: Status
    refusals: tuple[Refusal, ...] = ()


class PciDevice(Struct, frozen=True):
    address: str
    vendor: str  # 10de
    kind: str  # the class, of four digits: 0302
    driver: str = ""
    numa: int | None = None
    answers: bool = True  # its configuration space is not all ones


class Node(Struct, frozen=True):
    """A device node."""

    major: int
    minor: int
    mode: int
    gid: int = 0


class DevFiles(Struct, frozen=True):
    nodes: Mapping[str, Node] = field(default_factory=dict)  # by path
    char_links: frozenset[str] = frozenset()  # names in /dev/char: 195:0


class NvidiaFiles(Struct, frozen=True):
    """What the kernel and the file system show of NVIDIA's driver."""

    kernel_version: str = ""  # of the loaded module
    libraries: tuple[str, ...] = ()  # libnvidia-ml.so.*, below the driver's root
    searched: tuple[str, ...] = ()


class GpuFacts(Struct, frozen=True):
    """A GPU as NVML shows it."""

    uuid: str
    index: int
    minor: int
    bus_id: str = ""
    rows_pending: bool = False
    rows_failed: bool = False
    mig_enabled: bool = False
    profiles: tuple[str, ...] = ()  # of its MIG instances
    cap_paths: tuple[str, ...] = ()  # nodes of these
    fabric: str = ""  # why its fabric is not ready; empty: it is, or it has none


class NvmlFacts(Struct, frozen=True):
    gpus: tuple[GpuFacts, ...] = ()
    problems: tuple[str, ...] = ()  # of GPUs that gave no answer
    deaf: tuple[str, ...] = ()  # of GPUs whose driver reports no events


class NvmlFailure(Struct, frozen=True):
    """NVML was asked, and gave no list."""

    text: str
    library: bool = False  # it was not found, or could not be loaded


class Xid(Struct, frozen=True):
    bus_id: str
    number: int
    count: int = 1


class SpecialHost(Struct, frozen=True):
    soc: str = ""  # family of the system on a chip
    tegra: bool = False
    wsl: bool = False
    model: str = ""


class Selinux(Struct, frozen=True):
    enforcing: bool
    own: str = ""


class Inotify(Struct, frozen=True):
    limit: int
    used: int  # by root


class DeviceUser(Struct, frozen=True):
    """A process that has a device node open and is in no pod."""

    pid: int
    name: str
    path: str


class Runtime(Struct, frozen=True):
    """The container runtime, as its configuration says."""

    name: str  # containerd
    config: str  # its file
    version: str = ""  # empty: not known
    handlers: tuple[str, ...] = ()
    default: str = "runc"
    cdi: bool | None = None  # None: the file says nothing
    ownership: bool = False  # device_ownership_from_security_context
    systemd_cgroup: bool = False


class CdiFile(Struct, frozen=True):
    path: str
    kind: str = ""
    names: tuple[str, ...] = ()  # fully qualified
    absent: tuple[str, ...] = ()  # host paths in it that are not there
    problem: str = ""


class MpsPipe(Struct, frozen=True):
    resource: str
    directory: str
    problem: str = ""


class Taint(Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(Struct, frozen=True, rename="camel"):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class NodeObject(Struct, frozen=True):
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    capacity: Mapping[str, str] = field(default_factory=dict)
    kubelet_version: str = ""


class PodObject(Struct, frozen=True):
    namespace: str
    name: str
    phase: str = ""
    reason: str = ""
    message: str = ""
    images: tuple[str, ...] = ()
    user: int | None = None  # runAsUser of the pod or of its first container that says one
    groups: tuple[int, ...] = ()  # fsGroup and supplementalGroups

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Term(Struct, frozen=True):
    """One expression on a label of a node."""

    key: str
    operator: str = "In"
    values: tuple[str, ...] = ()


class DaemonSet(Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    images: tuple[str, ...] = ()
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    alternatives: tuple[tuple[Term, ...], ...] = ()  # of labels, each of which lets its pods onto a node
    surge: str = ""  # maxSurge, if it is not 0
    takes_over: bool = False
    runtime_class: str = ""
    complete: bool = False  # each node that it chooses has its pod

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Event(Struct, frozen=True):
    namespace: str
    object: str
    message: str


class RuntimeClass(Struct, frozen=True):
    name: str
    handler: str


class Slice(Struct, frozen=True):
    """A ResourceSlice of this node."""

    name: str
    driver: str
    devices: tuple[str, ...] = ()


class Right(Struct, frozen=True):
    feature: str
    group: str
    resource: str
    verb: str
    allowed: bool
    account: str = ""  # whose right it is, as the API server names it; empty: not known


class Facts(Struct, frozen=True, kw_only=True):
    where: Where = Where()
    # The kubelet:
    plugins: PluginDirectory | Missing = NOT_ASKED
    pod_resources: SocketFile | Missing = NOT_ASKED
    process: KubeletProcess | Missing = NOT_ASKED
    kubelet: KubeletConfig | Missing = NOT_ASKED
    checkpoint: DiskCheckpoint | Missing = NOT_ASKED
    holdings: Holdings | Missing = NOT_ASKED
    # Fairlead:
    daemons: tuple[DaemonFacts, ...] | Missing = NOT_ASKED
    config: Config | Missing = NOT_ASKED
    plan: Plan | Missing = NOT_ASKED  # made here, where no daemon answers
    mps: tuple[MpsPipe, ...] | Missing = NOT_ASKED
    # The host:
    pci: tuple[PciDevice, ...] | Missing = NOT_ASKED
    numa_nodes: int | Missing = NOT_ASKED
    modules: frozenset[str] | Missing = NOT_ASKED
    majors: Mapping[str, int] | Missing = NOT_ASKED  # of character devices, by driver
    dev: DevFiles | Missing = NOT_ASKED
    kfd: bool | Missing = NOT_ASKED  # whether /sys/class/kfd is there
    nvidia: NvidiaFiles | Missing = NOT_ASKED
    nvml: NvmlFacts | NvmlFailure | Missing = NOT_ASKED
    xids: tuple[Xid, ...] | Missing = NOT_ASKED
    special: SpecialHost | Missing = NOT_ASKED
    selinux: Selinux | Missing = NOT_ASKED
    inotify: Inotify | Missing = NOT_ASKED
    processes: frozenset[str] | Missing = NOT_ASKED  # names of all that run
    users: tuple[DeviceUser, ...] | Missing = NOT_ASKED
    runtime: Runtime | Missing = NOT_ASKED
    cdi: tuple[CdiFile, ...] | Missing = NOT_ASKED
    # The cluster:
    node: NodeObject | Missing = NOT_ASKED
    pods: tuple[PodObject, ...] | Missing = NOT_ASKED  # of this node
    daemon_sets: tuple[DaemonSet, ...] | Missing = NOT_ASKED  # of device plugins
    events: tuple[Event, ...] | Missing = NOT_ASKED  # FailedCreate
    runtime_classes: tuple[RuntimeClass, ...] | Missing = NOT_ASKED
    slices: tuple[Slice, ...] | Missing = NOT_ASKED
    rights: tuple[Right, ...] | Missing = NOT_ASKED
