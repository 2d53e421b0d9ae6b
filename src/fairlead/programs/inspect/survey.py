"""`kubectl inspect gpushare`: which pod has how much memory of which GPU, as the API server knows it.

Owns the way from nodes and pods to numbers. Sends no requests, and writes no text for people: see `text.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from fairlead.cluster.objects import ObjectMeta, PodObject, read_pod
from fairlead.model.errors import InvalidQuantity
from fairlead.model.quantity import parse_amount
from fairlead.policy.offering.units import read_unit
from fairlead.policy.pods.annotations import read_taken
from fairlead.policy.pods.contract import GPUSHARE, VOLCANO_MEMORY, Contract

GPUS_MAX = 256  # the driver numbers no more; a pod may name any, and each is a column
# A GPU has more than 1000 MiB and less than 1000 GiB.
_LARGE = 1000
MIXED = "mixed"


DIALECTS: Mapping[str, Contract] = {"gpushare": GPUSHARE, "volcano": VOLCANO_MEMORY}
_INDEXES = {str(index): str(index) for index in range(GPUS_MAX)}


# --- What the API server says -----------------------------------------------------------------------------------------


class Address(Struct, frozen=True):
    type: str = ""
    address: str = ""


class NodeStatus(Struct, frozen=True):
    addresses: list[Address] | None = None
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None


class NodeObject(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: NodeStatus = NodeStatus()


# --- What comes out ---------------------------------------------------------------------------------------------------


class PodRow(Struct, frozen=True):
    namespace: str
    name: str
    gpus: Mapping[int, int]  # units by index
    pending: int = 0  # units whose GPU is not known

    @property
    def allocated(self) -> int:
        return sum(self.gpus.values()) + self.pending

    def times(self, scale: int) -> PodRow:
        gpus = {index: units * scale for index, units in self.gpus.items()}
        return PodRow(self.namespace, self.name, gpus, self.pending * scale)


class NodeRow(Struct, frozen=True):
    name: str
    address: str
    unit: str  # empty: not known
    count: int
    total: int
    pods: tuple[PodRow, ...]  # by GPU; those without one last

    @property
    def allocated(self) -> int:
        return sum(pod.allocated for pod in self.pods)

    @property
    def pending(self) -> int:
        return sum(pod.pending for pod in self.pods)

    @property
    def indexes(self) -> tuple[int, ...]:
        """Those that the node counts, and those that its pods name all the same."""
        return tuple(sorted({*range(self.count), *(index for pod in self.pods for index in pod.gpus)}))

    def allocated_on(self, index: int) -> int:
        return sum(pod.gpus.get(index, 0) for pod in self.pods)

    def total_of(self, index: int) -> int:
        """A node publishes the sum: GPUs that differ are shown as if they did not."""
        return self.total // self.count if index < self.count else 0


class Survey(Struct, frozen=True):
    nodes: tuple[NodeRow, ...]
    notes: tuple[str, ...] = ()  # what is odd, for people

    @property
    def unit(self) -> str:
        units = {node.unit for node in self.nodes if node.unit}
        return units.pop() if len(units) == 1 else MIXED if units else ""

    @property
    def allocated(self) -> int:
        return sum(node.allocated for node in self.nodes)

    @property
    def total(self) -> int:
        return sum(node.total for node in self.nodes)


# --- From one to the other --------------------------------------------------------------------------------------------


class _Notes(Struct):
    texts: list[str] = field(default_factory=list)

    def amount(self, whose: str, amounts: Mapping[str, str] | None, resource: str) -> int:
        text = (amounts or {}).get(resource, "0")
        try:
            return parse_amount(text)
        except InvalidQuantity as error:
            self.texts.append(f"{whose}: {resource}: {error}. It counts as 0")
            return 0


def survey(nodes: Iterable[NodeObject], pods: Iterable[PodObject], contract: Contract) -> Survey:
    notes = _Notes()
    by_node: dict[str, list[PodObject]] = {}
    for pod in pods:
        if pod.status.phase not in {"Succeeded", "Failed"}:
            by_node.setdefault(pod.spec.node_name, []).append(pod)
    seen = (_node(node, by_node.get(node.metadata.name, ()), contract, notes) for node in nodes)
    rows = [row for row in seen if row is not None]
    found = Survey(tuple(rows))
    if not rows:
        notes.texts.append(f"no node here offers {contract.resource}")
    if found.unit == MIXED:
        notes.texts.append("nodes count in different units: the sum over all of them means nothing")
    return Survey(found.nodes, tuple(notes.texts))


def _node(node: NodeObject, pods: Iterable[PodObject], contract: Contract, notes: _Notes) -> NodeRow | None:
    """None for a node without such memory. One whose plugin is away offers none now, and its pods run on."""
    name, offered = node.metadata.name, node.status.allocatable
    total = notes.amount(f"node {name}", offered, contract.resource)
    # What is wrong with the capacity is said only where it decides.
    capacity = (_Notes() if total else notes).amount(f"node {name}", node.status.capacity, contract.resource)
    if not total and not capacity:
        return None
    count = notes.amount(f"node {name}", offered, contract.count)
    if count > GPUS_MAX:
        notes.texts.append(f"node {name}: {contract.count} is {count}, which no node has. It counts as 0")
        count = 0
    elif not count:
        notes.texts.append(f"node {name} offers no {contract.count}: only GPUs that pods name are shown")
    told_mib = read_unit(node.metadata.annotations or {}, contract.resource, capacity)
    scale, unit = _scale(told_mib) if told_mib else (1, "")
    rows = [row.times(scale) for pod in pods if (row := _pod(pod, contract, notes)).allocated]
    for row in rows:
        for index in row.gpus:
            if count and index >= count:
                whose = f"pod {row.namespace}/{row.name}"
                notes.texts.append(f"{whose} is on GPU {index}, and node {name} counts {count}: 0 to {count - 1}")
    rows.sort(key=lambda row: min(row.gpus, default=GPUS_MAX))  # stable: the server's order is by name
    if not unit and count and total:
        unit = "MiB" if total // count > _LARGE else contract.small_unit
    return NodeRow(name, _address(node), unit, count, total * scale, tuple(rows))


def _scale(unit_mib: int) -> tuple[int, str]:
    """Of how many GiB a unit is, or of how many MiB."""
    return (unit_mib // 1024, "GiB") if unit_mib % 1024 == 0 else (unit_mib, "MiB")


def _address(node: NodeObject) -> str:
    known = node.status.addresses or ()
    internal = (one.address for one in known if one.type == "InternalIP")
    return next(internal, known[0].address if known else "unknown")


def _pod(found: PodObject, contract: Contract, notes: _Notes) -> PodRow:
    pod = read_pod(found)
    taken = read_taken(pod, contract, _INDEXES)
    if taken.fault is not None and not taken.fault.absent:
        more = ". It counts as pending" if taken.nowhere else ""
        notes.texts.append(f"pod {pod}: {taken.fault.text}{more}")
    gpus = sorted((int(index), units) for index, units in taken.units.items() if units)
    return PodRow(pod.namespace, pod.name, dict(gpus), taken.nowhere)
