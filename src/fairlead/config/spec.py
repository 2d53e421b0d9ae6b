"""What can be configured. Their descriptions are the reference: schema, `config explain` and docs come from here."""

# Annotations are objects here, not text: text would be evaluated at each start (docs/decisions/0008-speed.md).
import enum
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from fairlead.backends.strict import Seconds
from fairlead.model.names import SOCKET_NAME
from fairlead.model.resource import Strategy
from fairlead.policy.health import Tuning

KUBELET_ROOT = "/var/lib/kubelet"


def _doc(text: str, *examples: Any) -> Meta:
    return Meta(description=text, examples=list(examples) or None)


def _seconds(number: float) -> Any:
    return field(default_factory=lambda: Seconds(number))  # the schema writer knows no Seconds among defaults


class _Spec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    pass


Globs = str | list[str]


class MountSpec(_Spec, frozen=True):
    """A path of the host that every container with a grant sees."""

    host: Annotated[str, _doc("Path on the host. Absolute.", "/usr/lib/vendor")]
    container: Annotated[str, _doc("Path in the container. Absolute. Default: the same path.")] = ""
    read_only: Annotated[bool, _doc("Whether the container may only read it.")] = True


class NodeSpec(_Spec, frozen=True):
    """A device file of the host that every container with a grant gets, beside those of its devices."""

    host: Annotated[str, _doc("Device file on the host. Absolute.", "/dev/vendorctl")]
    container: Annotated[str, _doc("Path in the container. Absolute. Default: the same path.")] = ""
    permissions: Annotated[str, _doc("Any of r (read), w (write), m (make node).", "rw")] = "rw"


class MatchSpec(_Spec, frozen=True):
    """Which devices a rule is for. Every part that is given must match; a part with several patterns needs one of them."""

    id: Annotated[Globs, _doc("Device id, as a glob or a list of globs.", "GPU-5c89*")] = []
    index: Annotated[
        str | int | list[str | int], _doc('Index, such as 0, or "0:*" for the partitions of device 0.', [0, 1])
    ] = []
    pci: Annotated[Globs, _doc("PCI address, as globs.", "0000:3b:*")] = []
    vendor: Annotated[Globs, _doc("Vendor, as globs; case does not matter.", "nvidia")] = []
    model: Annotated[Globs, _doc("Model, as globs; case does not matter.", "*H100*")] = []
    memory: Annotated[str, _doc("Memory range: a comparison, or two bounds.", ">=40GiB", "16GiB..24GiB")] = ""
    numa: Annotated[int | list[int], _doc("NUMA nodes, one of which the device is near.", [0])] = []
    backend: Annotated[Globs, _doc("Name of the backend that found it, as globs.", "sim")] = []
    attributes: Annotated[
        dict[str, Globs], _doc("What the backend says of the device, by name, as globs.", {"profile": "1g.*"})
    ] = {}
    first: Annotated[
        int, Meta(ge=0, description="Only so many of the devices that match, in the order of their index. 0: all.")
    ] = 0


class AlsoSpec(_Spec, frozen=True):
    """The devices of a rule once more, cut otherwise. A pod that takes a device in one form keeps the other away."""

    resource: Annotated[str, _doc("Name under which pods ask for them in this form.", "nvidia.com/gpu.shared")]
    replicas: Annotated[int, Meta(ge=1, le=65536, description="How many slots each device is shared as.")] = 1
    placement: Annotated[Strategy, _doc("As in the rule.")] = Strategy.ALIGNED
    per_container: Annotated[int, Meta(ge=0, description="As in the rule.")] = 0


class MemorySpec(_Spec, frozen=True):
    """Shares devices by their memory: a slot is a unit of it, and pods ask for so many units."""

    unit: Annotated[
        str | int,
        _doc(
            "How much memory a slot stands for, in whole MiB. auto: the smallest that fits and that the kubelet can bear.",
            "auto",
            "256MiB",
        ),
    ] = "auto"
    grow: Annotated[
        bool, _doc("Whether a unit whose list the kubelet would not take is doubled until it does. Else it is refused.")
    ] = False
    max_stall: Annotated[
        Seconds | None,
        _doc(
            "How long a kubelet that restarts may be busy with the list while all of it is held. auto, and a unit that may "
            "grow, are doubled until it is no longer. 0: any time. Default: 500ms; with ids, any time.",
            "500ms",
        ),
    ] = None
    required: Annotated[
        bool,
        _doc("Whether the daemon ends when the unit is refused as it starts. Else it goes on without the resource."),
    ] = False
    straddle: Annotated[
        bool, _doc("Whether the memory of one container may lie on several devices, when no single one has enough.")
    ] = False
    ids: Annotated[
        str,
        _doc(
            "How slots are named, for pods that hold such ids already: {id} or {index} of the device, and {n} at the end.",
            "{id}-_-{n}",
        ),
    ] = ""


class By(enum.StrEnum):
    INDEX = "index"
    ID = "id"


class NodeEnvSpec(_Spec, frozen=True):
    """Environment that depends on a label of the node."""

    label: Annotated[str, _doc("Label of the node.", "cgpu.disable.isolation")]
    value: Annotated[str, _doc("Its value, exactly.")]
    env: Annotated[dict[str, str], _doc("Environment of the containers while the label has this value.")]


class AssignSpec(_Spec, frozen=True):
    """An upper scheduler has chosen the device and wrote it on the pod. Keys are annotations of the pod."""

    device: Annotated[str, _doc("Names the device, or several with commas between them.", "example.com/gpu-index")]
    by: Annotated[By, _doc("What stands there: index, such as 0, or id, such as GPU-5c89....")] = By.INDEX
    per_container: Annotated[
        str,
        _doc("JSON with a device for each container: {number: {index: units}}. Where it is, it goes before device."),
    ] = ""
    time: Annotated[
        str,
        _doc("When the device was chosen, as a whole number. Of pods that came together the oldest is served first."),
    ] = ""
    time_required: Annotated[bool, _doc("Whether a pod without it is passed over. Else it comes last.")] = False
    assigned: Annotated[str, _doc("Says whether the pod has its devices.")] = ""
    unassigned: Annotated[list[str], _doc("Values of it that mean: not yet. An empty one: it is not there.")] = field(
        default_factory=lambda: ["false"]
    )
    after_bind: Annotated[
        bool,
        _doc(
            "Whether the scheduler may write device, time and assigned after it has bound the pod. "
            "false: a pod that lacks one of them is refused at once."
        ),
    ] = True
    actual: Annotated[
        str,
        _doc(
            "Ours to write: which devices a pod has that got others than it was promised. With it, the scheduler's "
            "annotations are never rewritten: for schedulers that count by what they wrote.",
            "example.com/gpu-actual",
        ),
    ] = ""
    needs: Annotated[list[str], _doc("Must be there, and not empty, before a container starts.")] = []
    wait: Annotated[
        Seconds, _doc("How long the kubelet is kept waiting for a pod, or for what it needs. Then: an error.", "5s")
    ] = _seconds(5)
    marks: Annotated[
        dict[str, str],
        _doc(
            "Written on the pod when the kubelet shows that it has its devices. {nowNs}: the time in nanoseconds.",
            {"example.com/gpu-assigned": "true"},
        ),
    ] = {}
    only_device: Annotated[
        bool, _doc("Whether a node with a single device gives it to a container that no pod explains.")
    ] = False
    strict: Annotated[
        bool,
        _doc("Whether slots that lie on another device than the one chosen are refused. Else the pod's word counts."),
    ] = False
    node_lock: Annotated[str, _doc("Annotation of the node that is removed after each admission.", "gpu")] = ""
    node_env: Annotated[list[NodeEnvSpec], _doc("Environment that depends on a label of the node.")] = []


class RuleSpec(_Spec, frozen=True):
    """Turns devices into a resource. Rules are tried in order; a device belongs to the first that matches."""

    match: Annotated[MatchSpec, _doc("Which devices. Left out: every device.")] = MatchSpec()
    resource: Annotated[
        str,
        _doc(
            "Name under which pods ask for the devices. {attribute} stands for what the backend says of each.",
            "nvidia.com/gpu",
            "nvidia.com/mig-{profile}",
        ),
    ] = ""
    exclude: Annotated[bool, _doc("Leave the devices out. Instead of resource.")] = False
    replicas: Annotated[
        int, Meta(ge=1, le=65536, description="How many slots each device is shared as. 1: whole devices.")
    ] = 1
    memory: Annotated[
        MemorySpec | None, _doc("Share devices by their memory. Instead of replicas.", {"unit": "auto"})
    ] = None
    assign: Annotated[
        AssignSpec | None,
        _doc("Give each container the device that a scheduler wrote on its pod. Needs the API server."),
    ] = None
    per_container: Annotated[
        int,
        Meta(ge=0, description="How many slots one container may ask for. 0: any number; units of memory: 16384."),
    ] = 0
    also: Annotated[
        list[AlsoSpec],
        _doc("Offers the same devices in a second form, whole beside shared. Needs kubelet.podResources."),
    ] = []
    placement: Annotated[
        Strategy,
        _doc("aligned: best links, with memory as pack; pack: fill what is in use; spread: use what is least in use."),
    ] = Strategy.ALIGNED
    env: Annotated[
        dict[str, str],
        _doc(
            "Environment of the container. {ids}, {indexes}, {slots}, {count} and {resource} are filled in; "
            "with memory also {units}, {memoryMib}, {memoryTotalMib} and {memoryPercent}; with assign also {podName}, {podNamespace}, "
            "{podUnits}, {assigned}, {deviceUnits}, {deviceMib}, {nodeUnits} and {annotation:KEY}.",
            {"GPUS": "{ids}"},
        ),
    ] = {}
    annotations: Annotated[
        dict[str, str], _doc("Annotations of the container, for the runtime. Filled in like env.")
    ] = {}
    mounts: Annotated[list[MountSpec], _doc("Paths of the host that the container sees.")] = []
    devices: Annotated[list[NodeSpec], _doc("Device files that the container gets beside those of its devices.")] = []


class Registration(enum.StrEnum):
    SOCKET = "socket"
    WATCHER = "watcher"
    NONE = "none"


class KubeletSpec(_Spec, frozen=True):
    """Where the kubelet is."""

    directory: Annotated[str, _doc("The kubelet's device-plugin directory.")] = f"{KUBELET_ROOT}/device-plugins"
    registration: Annotated[
        Registration,
        _doc("socket: call kubelet.sock; watcher: wait to be found in watcherDirectory; none: serve, and do not call."),
    ] = Registration.SOCKET
    socket: Annotated[str, _doc("The kubelet's own socket. Empty: kubelet.sock in the directory.")] = ""
    watcher_directory: Annotated[str, _doc("The kubelet's plugin-watcher directory.")] = (
        f"{KUBELET_ROOT}/plugins_registry"
    )
    socket_name: Annotated[
        str, _doc("Name of a resource's socket file. {domain} and {name} are the parts of the resource's name.")
    ] = SOCKET_NAME
    pod_resources: Annotated[
        str, _doc("The kubelet's pod-resources socket, read to learn who holds what. Empty: do not ask.")
    ] = f"{KUBELET_ROOT}/pod-resources/kubelet.sock"


class ScanSpec(_Spec, frozen=True):
    """How devices are looked for."""

    interval: Annotated[Seconds, _doc("Time between scans; events of the backend bring one forward.", "60s")] = (
        _seconds(60)
    )
    deadline: Annotated[
        Seconds, _doc("A scan that takes longer counts as failed; the last inventory stays.", "30s")
    ] = _seconds(30)
    required: Annotated[
        bool, _doc("Whether the daemon ends when a backend's first scan fails. Else it waits, and scans again.")
    ] = False


class HealthSpec(_Spec, frozen=True):
    """How faults are judged. See the guide on health."""

    probe_interval: Annotated[Seconds, _doc("Time between two probes of a device.", "5s")] = _seconds(5)
    rest_interval: Annotated[
        Seconds,
        _doc(
            "The same while all devices of a backend are well, if it also hears of faults as they happen. "
            "0: as probeInterval.",
            "30s",
        ),
    ] = _seconds(0)
    probe_deadline: Annotated[Seconds, _doc("A probe that takes longer counts as a transient fault.", "5s")] = _seconds(
        5
    )
    suspect: Annotated[Seconds, _doc("A second transient fault within this time withdraws the device.", "60s")] = (
        _seconds(60)
    )
    clean_probes: Annotated[int, Meta(ge=1, description="Probes in a row that must find nothing before probation.")] = 3
    hold: Annotated[Seconds, _doc("Shortest time withdrawn, from the last fault.", "30s")] = _seconds(30)
    hold_growth: Annotated[
        float, Meta(ge=1, description="Each further fall within flapWindow multiplies the hold.")
    ] = 2.0
    hold_max: Annotated[Seconds, _doc("Longest hold that growth leads to.", "30m")] = _seconds(1800)
    probation: Annotated[Seconds, _doc("Time without a fault before the device is offered again.", "60s")] = _seconds(
        60
    )
    flap_window: Annotated[Seconds, _doc("Falls are counted over this time.", "1h")] = _seconds(3600)
    flap_count: Annotated[int, Meta(ge=1, description="This many falls within flapWindow are flapping.")] = 5
    quarantine: Annotated[Seconds, _doc("The hold of a flapping device.", "2h")] = _seconds(7200)

    def tuning(self) -> Tuning:
        return Tuning(
            suspect_s=self.suspect,
            clean_probes=self.clean_probes,
            hold_s=self.hold,
            hold_growth=self.hold_growth,
            hold_max_s=self.hold_max,
            probation_s=self.probation,
            flap_window_s=self.flap_window,
            flap_count=self.flap_count,
            quarantine_s=self.quarantine,
        )


class AmountSpec(_Spec, frozen=True):
    """An amount in the node's status, without devices behind it: the scheduler counts it, the kubelet hands nothing out."""

    resource: Annotated[str, _doc("Name under which pods ask for it.", "example.com/gpu-core")]
    match: Annotated[MatchSpec, _doc("Which devices count. Left out: every device.")] = MatchSpec()
    per_device: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="So much for each usable device that matches.", examples=[100])
    ] = 0
    unusable: Annotated[
        bool, _doc("Count devices that are not usable now too, for schedulers that divide other amounts by this one.")
    ] = False
    total: Annotated[str | int, _doc("A fixed amount, whatever devices there are. Instead of perDevice.", 5, "1k")] = ""
    adopt: Annotated[bool, _doc("Take the name over if somebody else has set it on the node.")] = False


class ClusterSpec(_Spec, frozen=True):
    """How to reach the API server. Used by amounts, assign and unhealthy only."""

    node: Annotated[str, _doc("Name of this node in the cluster. Default: $NODE_NAME.")] = ""
    kubeconfig: Annotated[
        str, _doc("Kubeconfig file. Default: $KUBECONFIG, else the pod's own account, else ~/.kube/config.")
    ] = ""
    context: Annotated[str, _doc("Context of the kubeconfig. Default: its current one.")] = ""
    server: Annotated[str, _doc("Address of the API server, instead of a kubeconfig.", "https://10.0.0.1:6443")] = ""
    token_file: Annotated[
        str,
        _doc("File with the token for server. Read for every request. It is not sent over http, except to this host."),
    ] = ""
    ca_file: Annotated[str, _doc("File with the certificates to trust, for server. Default: those of the host.")] = ""
    unhealthy: Annotated[
        str, _doc("Annotation of the node that lists the indexes of unusable devices.", "example.com/unhealthy-ids")
    ] = ""


class StatusSpec(_Spec, frozen=True):
    """The daemon's own socket, for `fairlead status`."""

    socket: Annotated[str, _doc("Path of the socket. Empty: none.")] = "/run/fairlead/fairlead.sock"


class WatchdogSpec(_Spec, frozen=True):
    """What sees an event loop that hangs."""

    limit: Annotated[Seconds, _doc("The process ends when its event loop hangs for longer. 0: never.", "60s")] = (
        _seconds(60)
    )


class LogFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


class LogSpec(_Spec, frozen=True):
    format: Annotated[LogFormat, _doc("text for people, json for machines.")] = LogFormat.TEXT


class Config(_Spec, frozen=True):
    """The whole configuration of a daemon."""

    backends: Annotated[
        list[dict[str, Any]],
        _doc(
            "Where devices come from: kind names the backend, the other keys are its own.",
            [{"kind": "sim", "fleet": "h100x8"}],
        ),
    ] = []
    rules: Annotated[list[RuleSpec], _doc("Which device belongs to which resource. First match wins.")] = []
    amounts: Annotated[
        list[AmountSpec], _doc("Amounts without devices, published in the node's status. Needs the API server.")
    ] = []
    cluster: Annotated[
        ClusterSpec, _doc("How to reach the API server. Used by amounts, assign and unhealthy only.")
    ] = field(default_factory=ClusterSpec)
    kubelet: Annotated[KubeletSpec, _doc("Where the kubelet is.")] = field(default_factory=KubeletSpec)
    scan: Annotated[ScanSpec, _doc("How devices are looked for.")] = field(default_factory=ScanSpec)
    health: Annotated[HealthSpec, _doc("How faults are judged.")] = field(default_factory=HealthSpec)
    status: Annotated[StatusSpec, _doc("The daemon's own socket.")] = field(default_factory=StatusSpec)
    watchdog: Annotated[WatchdogSpec, _doc("What sees an event loop that hangs.")] = field(default_factory=WatchdogSpec)
    log: Annotated[LogSpec, _doc("What the daemon writes to standard error.")] = field(default_factory=LogSpec)
    instance: Annotated[str, _doc("Name of this daemon. Two daemons in one directory need two names.")] = "fairlead"
