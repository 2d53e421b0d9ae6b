"""What can be configured. The descriptions are the reference: schema, `config explain` and docs come from them."""

# Annotations are objects here, not text: text would be evaluated at each start (docs/decisions/0008-speed.md).
import enum
from typing import Annotated, Any

from msgspec import Meta, field

from fairlead.config.rulespec import MatchSpec, RuleSpec, Spec, doc, seconds
from fairlead.kit.decoding import Bytes, Seconds
from fairlead.model.names import SOCKET_NAME
from fairlead.policy.health import Tuning
from fairlead.policy.storms import Tuning as StormTuning

KUBELET_ROOT = "/var/lib/kubelet"


class Registration(enum.StrEnum):
    SOCKET = "socket"
    WATCHER = "watcher"
    NONE = "none"


class KubeletSpec(Spec, frozen=True):
    """Where the kubelet is."""

    directory: Annotated[str, doc("The kubelet's device-plugin directory.")] = f"{KUBELET_ROOT}/device-plugins"
    registration: Annotated[
        Registration,
        doc("socket: call kubelet.sock; watcher: wait to be found in watcherDirectory; none: serve, and do not call."),
    ] = Registration.SOCKET
    socket: Annotated[str, doc("The kubelet's own socket. Empty: kubelet.sock in the directory.")] = ""
    watcher_directory: Annotated[str, doc("The kubelet's plugin-watcher directory.")] = (
        f"{KUBELET_ROOT}/plugins_registry"
    )
    socket_name: Annotated[
        str,
        doc(
            "Name of a resource's socket file. {domain} and {name} are the parts of the resource's name, {started} is the start in seconds."
        ),
    ] = SOCKET_NAME
    pod_resources: Annotated[
        str, doc("The kubelet's pod-resources socket, read to learn who holds what. Empty: do not ask.")
    ] = f"{KUBELET_ROOT}/pod-resources/kubelet.sock"


class ScanSpec(Spec, frozen=True):
    """How devices are looked for."""

    interval: Annotated[Seconds, doc("Time between scans; events of the backend bring one forward.", "60s")] = seconds(
        60
    )
    deadline: Annotated[Seconds, doc("A scan that takes longer counts as failed; the last inventory stays.", "30s")] = (
        seconds(30)
    )
    required: Annotated[
        bool, doc("Whether the daemon ends when a backend's first scan fails. Else it waits, and scans again.")
    ] = False
    remember: Annotated[
        bool,
        doc(
            "Whether devices that a daemon of the same boot found are offered while a first scan is slow. "
            "The scan confirms them, and Allocate waits for it."
        ),
    ] = True


class HealthSpec(Spec, frozen=True):
    """How faults are judged. See the guide on health."""

    probe_interval: Annotated[Seconds, doc("Time between two probes of a device.", "5s")] = seconds(5)
    rest_interval: Annotated[
        Seconds,
        doc(
            "The same while all devices of a backend are well, if it also hears of faults as they happen. "
            "0: as probeInterval.",
            "30s",
        ),
    ] = seconds(0)
    probe_deadline: Annotated[Seconds, doc("A probe that takes longer counts as a transient fault.", "5s")] = seconds(5)
    suspect: Annotated[Seconds, doc("A second transient fault within this time withdraws the device.", "60s")] = (
        seconds(60)
    )
    clean_probes: Annotated[int, Meta(ge=1, description="Probes in a row that must find nothing before probation.")] = 3
    hold: Annotated[Seconds, doc("Shortest time withdrawn, from the last fault.", "30s")] = seconds(30)
    hold_growth: Annotated[
        float, Meta(ge=1, description="Each further fall within flapWindow multiplies the hold.")
    ] = 2.0
    hold_max: Annotated[Seconds, doc("Longest hold that growth leads to.", "30m")] = seconds(1800)
    probation: Annotated[Seconds, doc("Time without a fault before the device is offered again.", "60s")] = seconds(60)
    flap_window: Annotated[Seconds, doc("Falls are counted over this time.", "1h")] = seconds(3600)
    flap_count: Annotated[int, Meta(ge=1, description="This many falls within flapWindow are flapping.")] = 5
    quarantine: Annotated[Seconds, doc("The hold of a flapping device.", "2h")] = seconds(7200)

    def tuning(self) -> Tuning:
        return Tuning(
            suspect_s=float(self.suspect),
            clean_probes=self.clean_probes,
            hold_s=float(self.hold),
            hold_growth=self.hold_growth,
            hold_max_s=float(self.hold_max),
            probation_s=float(self.probation),
            flap_window_s=float(self.flap_window),
            flap_count=self.flap_count,
            quarantine_s=float(self.quarantine),
        )


class AmountSpec(Spec, frozen=True):
    """An amount in the node's status, without devices behind it: the scheduler counts it, the kubelet hands nothing out."""

    resource: Annotated[str, doc("Name under which pods ask for it.", "example.com/gpu-core")]
    match: Annotated[MatchSpec, doc("Which devices count. Left out: every device.")] = MatchSpec()
    per_device: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="So much for each usable device that matches.", examples=[100])
    ] = 0
    unusable: Annotated[
        bool, doc("Count devices that are not usable now too, for schedulers that divide other amounts by this one.")
    ] = False
    total: Annotated[str | int, doc("A fixed amount, whatever devices there are. Instead of perDevice.", 5, "1k")] = ""
    adopt: Annotated[bool, doc("Take the name over if another program has set it on the node.")] = False


class NodeConditionSpec(Spec, frozen=True):
    """A condition of the node that stands while faults of some codes were seen since its boot."""

    type: Annotated[str, doc("Its type.", "XidCriticalError")]
    codes: Annotated[list[str], doc("Codes of faults that set it, as globs.", ["xid-79", "xid-48"])]


class NodeEventsSpec(Spec, frozen=True):
    """Events on the node for faults as they are reported."""

    reason: Annotated[str, doc("Their reason.", "XIDError")]
    component: Annotated[str, doc("Who reports them.")] = "fairlead"
    message: Annotated[str, doc("Their text. {code}: of the fault; {number}: the number at its end.")] = "{code}"
    codes: Annotated[list[str], doc("Codes of faults that are reported, as globs.")] = field(
        default_factory=lambda: ["*"]
    )


class ClusterSpec(Spec, frozen=True):
    """How to reach the API server. Used by amounts, assign and the keys below only."""

    node: Annotated[str, doc("Name of this node in the cluster. Default: $NODE_NAME.")] = ""
    kubeconfig: Annotated[
        str, doc("Kubeconfig file. Default: $KUBECONFIG, else the pod's own account, else ~/.kube/config.")
    ] = ""
    context: Annotated[str, doc("Context of the kubeconfig. Default: its current one.")] = ""
    server: Annotated[str, doc("Address of the API server, instead of a kubeconfig.", "https://10.0.0.1:6443")] = ""
    token_file: Annotated[
        str,
        doc("File with the token for server. Read for every request. It is not sent over http, except to this host."),
    ] = ""
    ca_file: Annotated[str, doc("File with the certificates to trust, for server. Default: those of the host.")] = ""
    node_metadata: Annotated[
        str,
        doc(
            "Host of the metadata server of a Google machine, which is asked for the name where node and $NODE_NAME "
            "have none. For condition, events and annotate only.",
            "metadata.google.internal",
        ),
    ] = ""
    condition: Annotated[NodeConditionSpec | None, doc("A condition of the node that tells of faults.")] = None
    events: Annotated[NodeEventsSpec | None, doc("Events on the node that tell of faults.")] = None
    annotate: Annotated[
        dict[str, str],
        doc(
            "Annotations of the node, by server-side apply. {name} is an attribute of a device, {name.0} its first "
            "part before a dot. One without a value is left out.",
            {"example.com/driver": "{driverVersion}"},
        ),
    ] = field(default_factory=dict)
    field_manager: Annotated[str, doc("Under which name they are applied.")] = "fairlead"
    unhealthy: Annotated[
        str, doc("Annotation of the node that lists the indexes of unusable devices.", "example.com/unhealthy-ids")
    ] = ""
    devices: Annotated[
        bool, doc("Tell schedulers of single devices, by an annotation of the node for each resource.")
    ] = False


class StatusSpec(Spec, frozen=True):
    """The daemon's own socket, for `fairlead status`."""

    socket: Annotated[str, doc("Path of the socket. Empty: none.")] = "/run/fairlead/fairlead.sock"


class MetricNames(enum.StrEnum):
    """Metrics under the names of another system, beside Fairlead's own."""

    GENERIC = "generic"  # squat's generic-device-plugin
    GKE = "gke"  # Google's plugin for GKE
    HAMI = "hami"  # HAMi's scheduler and monitor: what was granted of the memory of GPUs


class HttpSpec(Spec, frozen=True):
    """Probes, metrics and a page over HTTP."""

    listen: Annotated[
        str,
        doc("Address and port, such as 127.0.0.1:9402; :9402 for every address. Empty: none.", "127.0.0.1:9402"),
    ] = ""
    page: Annotated[bool, doc("Whether a page for people is served at /, beside probes and metrics.")] = True
    token_file: Annotated[
        str, doc("File with the token that the page asks for. Without one it is served on loopback only.")
    ] = ""
    names: Annotated[
        list[MetricNames],
        doc(
            "Metrics under the names of other systems too: generic for squat's plugin, gke for Google's, hami for HAMi's."
        ),
    ] = field(default_factory=list)
    usage: Annotated[bool, doc("Whether metrics say how busy devices are, where the backend can say it.")] = False
    hosts: Annotated[
        list[str], doc("Names under which it may be asked, beside addresses and localhost.", ["gpu-node-1"])
    ] = field(default_factory=list)


class WatchdogSpec(Spec, frozen=True):
    """What sees an event loop that hangs."""

    limit: Annotated[Seconds, doc("The process ends when its event loop hangs for longer. 0: never.", "60s")] = seconds(
        60
    )


class ForeignUse(enum.StrEnum):
    IGNORE = "ignore"
    WARN = "warn"
    HOLD = "hold"


class AuditSpec(Spec, frozen=True):
    """What compares grants, the kubelet's view and the processes of the host. See the guide on the audit."""

    interval: Annotated[Seconds, doc("Time between two looks. 0: only when `fairlead audit` asks for one.", "1m")] = (
        seconds(0)
    )
    foreign_use: Annotated[
        ForeignUse,
        doc(
            "A process that has a device open without holding it. ignore: it is no difference; warn: it is reported; "
            "hold: the device is kept from new pods meanwhile, too."
        ),
    ] = ForeignUse.WARN
    allow: Annotated[
        list[str],
        doc("Programs that may have any device open, by the names of their processes (15 characters), as globs."),
    ] = field(default_factory=lambda: ["dcgm-exporter", "nv-hostengine", "nvidia-cuda-mps*"])


class StormSpec(Spec, frozen=True):
    """When the same request is refused again and again: a controller makes its pod anew each time."""

    refusals: Annotated[
        int, Meta(ge=0, le=1000, description="So many within the time are a storm, which is told of. 0: never.")
    ] = 5
    within: Annotated[Seconds, doc("That time. A storm that is quiet for so long is over.", "1m")] = seconds(60)
    delay: Annotated[
        Seconds,
        doc(
            "Longest time that a refusal is held back in a storm, 10s at most. It slows the controller, and holds up the "
            "kubelet's loop for other pods, too. 0: not at all.",
            "2s",
        ),
    ] = seconds(0)

    def tuning(self) -> StormTuning:
        return StormTuning(self.refusals, self.within, self.delay)


class RecordSpec(Spec, frozen=True):
    """A recording of what the daemon hears, decides and answers, for `fairlead replay`."""

    file: Annotated[str, doc("Where it is kept. Empty: nothing is recorded.", "/var/lib/fairlead/flight.rec")] = ""
    max_size: Annotated[Bytes, doc("Of all its files together, at least 1MiB.", "64MiB")] = field(
        default_factory=lambda: Bytes(64 * 2**20)
    )


class LogFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


class LogSpec(Spec, frozen=True):
    format: Annotated[LogFormat, doc("text for people, json for machines.")] = LogFormat.TEXT
    directory: Annotated[
        str, doc("Where the journal is kept on disk, 8 MiB at most. Only if the directory exists. Empty: nowhere.")
    ] = "/var/lib/fairlead"


class Config(Spec, frozen=True):
    """The whole configuration of a daemon."""

    backends: Annotated[
        list[dict[str, Any]],
        doc(
            "Where devices come from: kind names the backend, the other keys are its own.",
            [{"kind": "sim", "fleet": "h100x8"}],
        ),
    ] = field(default_factory=list)
    rules: Annotated[list[RuleSpec], doc("Which device belongs to which resource. First match wins.")] = field(
        default_factory=list
    )
    amounts: Annotated[
        list[AmountSpec], doc("Amounts without devices, published in the node's status. Needs the API server.")
    ] = field(default_factory=list)
    cluster: Annotated[
        ClusterSpec, doc("How to reach the API server, and what is told there. Not used by plain rules.")
    ] = field(default_factory=ClusterSpec)
    kubelet: Annotated[KubeletSpec, doc("Where the kubelet is.")] = field(default_factory=KubeletSpec)
    scan: Annotated[ScanSpec, doc("How devices are looked for.")] = field(default_factory=ScanSpec)
    health: Annotated[HealthSpec, doc("How faults are judged.")] = field(default_factory=HealthSpec)
    status: Annotated[StatusSpec, doc("The daemon's own socket.")] = field(default_factory=StatusSpec)
    http: Annotated[HttpSpec, doc("Probes, metrics and a page over HTTP.")] = field(default_factory=HttpSpec)
    watchdog: Annotated[WatchdogSpec, doc("What sees an event loop that hangs.")] = field(default_factory=WatchdogSpec)
    audit: Annotated[AuditSpec, doc("Comparing grants, the kubelet's view and processes.")] = field(
        default_factory=AuditSpec
    )
    storm: Annotated[StormSpec, doc("Pods that are refused again and again.")] = field(default_factory=StormSpec)
    record: Annotated[RecordSpec, doc("A recording, to be played again.")] = field(default_factory=RecordSpec)
    log: Annotated[LogSpec, doc("What the daemon writes to standard error.")] = field(default_factory=LogSpec)
    take_over: Annotated[
        bool,
        doc(
            "Whether to take over from a daemon that serves the same directory, without a gap. "
            "Else the start fails while another one serves."
        ),
    ] = False
    instance: Annotated[str, doc("Name of this daemon. Two daemons in one directory need two names.")] = "fairlead"
