"""What people may write: the options of the simulated backend, a fleet, and the orders of a timeline.

Owns shapes and defaults only. `build` makes devices of a fleet, `world` carries orders out.
"""

# Annotations are objects here, not text: text would be evaluated at each start (docs/decisions/0008-speed.md).
from typing import Annotated, TypeAlias

import msgspec

from fairlead.kit.decoding import Bytes, Seconds
from fairlead.model.health import CauseKind

Count = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
DeviceRef: TypeAlias = str | int  # an id, an index, or the beginning of an id that fits one device only
_NOW = Seconds(0)


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    path: str
    container: str = ""
    permissions: str = "rw"


class Partition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """So many equal parts of every device of the group. A partitioned device is offered in parts only."""

    profile: str
    count: Count = 1
    memory: Bytes = Bytes(0)
    id: str = "MIG-{uuid}"
    nodes: tuple[str | Node, ...] = ()


class LinkSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the devices of a group are joined: a scheme or a matrix, and pairs that add to it."""

    scheme: str = ""
    width: int = 18  # nvswitch: NVLinks of each device
    # How many neighbours share. pcie-tree: a switch, switches, a host-bridge, a node. xgmi: a hive.
    blocks: dict[str, Count] = {}
    matrix: tuple[tuple[int, ...], ...] = ()
    pairs: dict[str, int] = {}  # "0-3: 200", by number within the group


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """So many like devices. Patterns know {uuid}, {n} (number in the fleet), {i} (in the group), {pci}, {fleet}."""

    count: Count = 1
    id: str = "GPU-{uuid}"
    index: str = "{n}"
    vendor: str = ""
    model: str = ""
    memory: Bytes = Bytes(0)
    pci: str | tuple[str, ...] = ""
    numa: int | tuple[int, ...] = ()  # one for all, one each, or fewer: then equal blocks
    links: str | LinkSpec = ""
    partitions: tuple[Partition, ...] = ()
    nodes: tuple[str | Node, ...] = ()
    attributes: dict[str, str] = {}


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="do"):
    at: Seconds = _NOW


class Fault(Order, frozen=True, kw_only=True):
    """Which device, and what is wrong with it: an XID, or a code of one's own."""

    device: DeviceRef
    xid: int | None = None
    code: str = ""
    kind: CauseKind | None = None
    message: str = ""


class Fail(Fault, frozen=True, kw_only=True, tag="fail"):
    """A fault is reported, and probes find it until it is cleared."""


class Flap(Fault, frozen=True, kw_only=True, tag="flap"):
    """Fails and clears so many times."""

    times: Count = 3
    every: Seconds = Seconds(10)


class Clear(Order, frozen=True, kw_only=True, tag="clear"):
    """One cause is over, or all of them: a reset was seen."""

    device: DeviceRef
    xid: int | None = None
    code: str = ""


class Recover(Order, frozen=True, kw_only=True, tag="recover"):
    """All is well again: with one device, or without one with all of them and with scanning."""

    device: DeviceRef | None = None
    silent: bool = False  # nothing is reported: only clean probes show it


class Unplug(Order, frozen=True, kw_only=True, tag="unplug"):
    device: DeviceRef


class Plug(Order, frozen=True, kw_only=True, tag="plug"):
    """A device comes back, or new ones join."""

    device: DeviceRef | None = None
    new: Group | None = None


class Slow(Order, frozen=True, kw_only=True, tag="slow"):
    """Probes of a device take this long."""

    device: DeviceRef
    takes: Seconds


class Hang(Order, frozen=True, kw_only=True, tag="hang"):
    """Probes of a device do not answer."""

    device: DeviceRef


class ScanError(Order, frozen=True, kw_only=True, tag="scan-error"):
    message: str = "the driver does not answer"


class ScanSlow(Order, frozen=True, kw_only=True, tag="scan-slow"):
    takes: Seconds


AnyOrder: TypeAlias = Fail | Flap | Clear | Recover | Unplug | Plug | Slow | Hang | ScanError | ScanSlow


class Fleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str = ""
    description: str = ""
    devices: tuple[Group, ...]
    timeline: tuple[AnyOrder, ...] = ()


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    fleet: str | Fleet = "h100x8"  # a ready-made name, a path to a YAML file, or the fleet itself
    timeline: tuple[AnyOrder, ...] | None = None  # stands in for the fleet's own
    speed: Positive = 1.0  # 10: the timeline runs ten times as fast
