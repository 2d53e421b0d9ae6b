"""What can be configured of rules: which devices they are for, and what pods get. The rest is in `spec.py`."""

# Annotations are objects here, not text: text would be evaluated at each start (docs/decisions/0008-speed.md).
import enum
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from fairlead.kit.decoding import Seconds
from fairlead.model.resource import Strategy


def doc(text: str, *examples: Any) -> Meta:
    return Meta(description=text, examples=list(examples) or None)


def seconds(number: float) -> Any:
    return field(default_factory=lambda: Seconds(number))  # the schema writer knows no Seconds among defaults


class Spec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    pass


Globs = str | list[str]


class MountSpec(Spec, frozen=True):
    """A path of the host that every container with a grant sees."""

    host: Annotated[str, doc("Path on the host. Absolute.", "/usr/lib/vendor")]
    container: Annotated[str, doc("Path in the container. Absolute. Default: the same path.")] = ""
    read_only: Annotated[bool, doc("Whether the container may only read it.")] = True


class NodeSpec(Spec, frozen=True):
    """A device file of the host that every container with a grant gets, beside those of its devices."""

    host: Annotated[str, doc("Device file on the host. Absolute.", "/dev/vendorctl")]
    container: Annotated[str, doc("Path in the container. Absolute. Default: the same path.")] = ""
    permissions: Annotated[str, doc("Any of r (read), w (write), m (make node).", "rw")] = "rw"


class MatchSpec(Spec, frozen=True):
    """Which devices a rule is for. Every part that is given must match; a part with several patterns needs one of them."""

    id: Annotated[Globs, doc("Device id, as a glob or a list of globs.", "GPU-5c89*")] = []
    index: Annotated[
        str | int | list[str | int], doc('Index, such as 0, or "0:*" for the partitions of device 0.', [0, 1])
    ] = []
    pci: Annotated[Globs, doc("PCI address, as globs.", "0000:3b:*")] = []
    vendor: Annotated[Globs, doc("Vendor, as globs; case does not matter.", "nvidia")] = []
    model: Annotated[Globs, doc("Model, as globs; case does not matter.", "*H100*")] = []
    memory: Annotated[str, doc("Memory range: a comparison, or two bounds.", ">=40GiB", "16GiB..24GiB")] = ""
    numa: Annotated[int | list[int], doc("NUMA nodes, one of which the device is near.", [0])] = []
    backend: Annotated[Globs, doc("Name of the backend that found it, as globs.", "sim")] = []
    attributes: Annotated[
        dict[str, Globs], doc("What the backend says of the device, by name, as globs.", {"profile": "1g.*"})
    ] = {}
    first: Annotated[
        int, Meta(ge=0, description="Only so many of the devices that match, in the order of their index. 0: all.")
    ] = 0


class AlsoSpec(Spec, frozen=True):
    """The devices of a rule in a second form. A pod that holds a device in one form blocks the other."""

    resource: Annotated[str, doc("Name under which pods ask for them in this form.", "nvidia.com/gpu.shared")]
    replicas: Annotated[int, Meta(ge=1, le=65536, description="How many slots each device is shared as.")] = 1
    placement: Annotated[Strategy, doc("As in the rule.")] = Strategy.ALIGNED
    per_container: Annotated[int, Meta(ge=0, description="As in the rule.")] = 0


class MemorySpec(Spec, frozen=True):
    """Shares devices by their memory: a slot is a unit of it, and pods ask for so many units."""

    unit: Annotated[
        str | int,
        doc(
            "How much memory a slot stands for, in whole MiB. auto: the smallest that fits and that the kubelet can bear.",
            "auto",
            "256MiB",
        ),
    ] = "auto"
    grow: Annotated[
        bool,
        doc(
            "Whether a unit whose list the kubelet would not accept is doubled until the kubelet accepts the list and can "
            "bear it. Else it is refused."
        ),
    ] = False
    max_stall: Annotated[
        Seconds | None,
        doc(
            "How long a kubelet that restarts may be busy with the list while all of it is held. auto, and a unit that may "
            "grow, are doubled until it is no longer. 0: any time. Default: 500ms; with ids, any time for the given unit, "
            "and 500ms for one that must grow because its list would not be accepted.",
            "500ms",
        ),
    ] = None
    required: Annotated[
        bool,
        doc("Whether the daemon ends when the unit is refused as it starts. Else it goes on without the resource."),
    ] = False
    straddle: Annotated[
        bool, doc("Whether the memory of one container may be on several devices, when no single one has enough.")
    ] = False
    ids: Annotated[
        str,
        doc(
            "How slots are named, for pods that hold such ids already: {id} or {index} of the device, and {n} at the end.",
            "{id}-_-{n}",
        ),
    ] = ""


class By(enum.StrEnum):
    INDEX = "index"
    ID = "id"


class NodeEnvSpec(Spec, frozen=True):
    """Environment that depends on a label of the node."""

    label: Annotated[str, doc("Label of the node.", "cgpu.disable.isolation")]
    value: Annotated[str, doc("Its value, exactly.")]
    env: Annotated[dict[str, str], doc("Environment of the containers while the label has this value.")]


class AssignSpec(Spec, frozen=True):
    """A scheduler has chosen the device and written it on the pod. Keys are annotations of the pod."""

    device: Annotated[str, doc("Names the device, or several with commas between them.", "example.com/gpu-index")]
    by: Annotated[By, doc("What the annotation holds: index, such as 0, or id, such as GPU-5c89....")] = By.INDEX
    per_container: Annotated[
        str,
        doc("JSON with a device for each container: {number: {index: units}}. It takes precedence over device."),
    ] = ""
    time: Annotated[
        str,
        doc("When the device was chosen, as a whole number. Of pods that came together the oldest is served first."),
    ] = ""
    time_required: Annotated[bool, doc("Whether a pod without it is passed over. Else it comes last.")] = False
    assigned: Annotated[str, doc("Says whether the pod has its devices.")] = ""
    unassigned: Annotated[
        list[str], doc("Values of it that mean: not yet. An empty value: the annotation is missing.")
    ] = field(default_factory=lambda: ["false"])
    after_bind: Annotated[
        bool,
        doc(
            "Whether the scheduler may write device, time and assigned after it has bound the pod. "
            "false: a pod that lacks one of them is refused at once."
        ),
    ] = True
    actual: Annotated[
        str,
        doc(
            "The daemon writes here which devices a pod has, if they are not the assigned ones. With it, the scheduler's  "
            "annotations are never rewritten: for schedulers that count by what they wrote.",
            "example.com/gpu-actual",
        ),
    ] = ""
    needs: Annotated[list[str], doc("Must exist, and not be empty, before a container starts.")] = []
    wait: Annotated[
        Seconds, doc("How long the kubelet waits for a pod, or for its annotations. Then: an error.", "5s")
    ] = seconds(5)
    marks: Annotated[
        dict[str, str],
        doc(
            "Written on the pod when the kubelet shows that it has its devices. {nowNs}: the time in nanoseconds.",
            {"example.com/gpu-assigned": "true"},
        ),
    ] = {}
    only_device: Annotated[
        bool, doc("Whether a node with a single device gives it to a container that matches no pod.")
    ] = False
    strict: Annotated[
        bool,
        doc("Whether slots of another device than the assigned one are refused. Else the annotation counts."),
    ] = False
    node_lock: Annotated[str, doc("Annotation of the node that is removed after each admission.", "gpu")] = ""
    node_env: Annotated[list[NodeEnvSpec], doc("Environment that depends on a label of the node.")] = []


class CleanupSpec(Spec, frozen=True):
    """A command that makes a device fit for the next container, after the last one has left it."""

    command: Annotated[
        list[str],
        doc(
            "The program, by its absolute path, and its arguments. {id}, {index} and {pci} of the device are filled in. "
            "The environment has FAIRLEAD_DEVICE, _INDEX, _PCI, _NODES and FAIRLEAD_RESOURCE. 0 as exit code: it is clean.",
            ["/usr/local/bin/scrub", "{index}"],
        ),
    ]
    deadline: Annotated[Seconds, doc("A command that takes longer is ended, and has failed.", "20s")] = seconds(20)


class RuleSpec(Spec, frozen=True):
    """Turns devices into a resource. Rules are tried in order; a device belongs to the first that matches."""

    match: Annotated[MatchSpec, doc("Which devices. Left out: every device.")] = MatchSpec()
    resource: Annotated[
        str,
        doc(
            "Name under which pods ask for the devices. {attribute} stands for what the backend says of each.",
            "nvidia.com/gpu",
            "nvidia.com/mig-{profile}",
        ),
    ] = ""
    exclude: Annotated[bool, doc("Leave the devices out. Instead of resource.")] = False
    replicas: Annotated[
        int, Meta(ge=1, le=65536, description="How many slots each device is shared as. 1: whole devices.")
    ] = 1
    ids: Annotated[
        str,
        doc(
            "How slots are named, for pods that hold such ids already: {id}, a slash, lower-case letters and {n}. "
            "Default: {id}::{n}, and {id} alone where replicas is 1.",
            "{id}/vgpu{n}",
        ),
    ] = ""
    memory: Annotated[
        MemorySpec | None, doc("Share devices by their memory. Instead of replicas.", {"unit": "auto"})
    ] = None
    assign: Annotated[
        AssignSpec | None,
        doc("Give each container the device that a scheduler wrote on its pod. Needs the API server."),
    ] = None
    per_container: Annotated[
        int,
        Meta(ge=0, description="How many slots one container may ask for. 0: any number; units of memory: 16384."),
    ] = 0
    uniform: Annotated[
        str,
        doc(
            "An attribute in which the devices must not differ, because pods cannot tell one from the other. "
            "Where they do, the resource is not offered, and a daemon that starts ends.",
            "profile",
        ),
    ] = ""
    cleanup: Annotated[
        CleanupSpec | None, doc("Clean a device before another container gets it. Needs kubelet.podResources.")
    ] = None
    also: Annotated[
        list[AlsoSpec],
        doc("Offers the same devices in a second form, whole beside shared. Needs kubelet.podResources."),
    ] = []
    placement: Annotated[
        Strategy,
        doc(
            "aligned: best links, with memory as pack; pack: fill what is in use; spread: use what is least in use; "
            "closest: least distance, from parents with the fewest partitions left, with memory as pack."
        ),
    ] = Strategy.ALIGNED
    env: Annotated[
        dict[str, str],
        doc(
            "Environment of the container. {ids}, {indexes}, {slots}, {count} and {resource} are filled in; "
            "with memory also {units}, {memoryMib}, {memoryTotalMib} and {memoryPercent}; with assign also {podName}, {podNamespace}, "
            "{podUnits}, {assigned}, {deviceUnits}, {deviceMib}, {nodeUnits} and {annotation:KEY}.",
            {"GPUS": "{ids}"},
        ),
    ] = {}
    annotations: Annotated[
        dict[str, str], doc("Annotations of the container, for the runtime. Filled in like env.")
    ] = {}
    mounts: Annotated[list[MountSpec], doc("Paths of the host that the container sees.")] = []
    devices: Annotated[list[NodeSpec], doc("Device files that the container gets beside those of its devices.")] = []
