"""`kubectl inspect gpushare`: which pod has how much memory of which GPU, as the API server knows it.

Owns the way from nodes and pods to numbers. Asks nobody, and writes no text for people: see `inspect_text.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial

import msgspec
from msgspec import Struct, field

from fairlead.cluster.objects import ObjectMeta, PodObject
from fairlead.model.errors import InvalidQuantity
from fairlead.model.quantity import AMOUNT_MAX, parse_amount
from fairlead.policy.unitmark import read_unit

GPUS_MAX = 256  # the driver numbers no more; a pod may name any, and each is a column
_INDEX = re.compile("[0-9]{1,3}")
# A GPU has more than 1000 MiB and less than 1000 GiB.
_LARGE = 1000
MIXED = "mixed"


class Words(Struct, frozen=True):
    """The names that a system of this family uses."""

    memory: str  # resource: units of memory
    count: str  # resource: how many GPUs
    device: str  # annotation of a pod: the index of its GPU
    per_container: str = ""  # annotation of a pod: {container: {index: units}}; goes before `device`
    small_unit: str = "GiB"  # of what counts a GPU in few units


DIALECTS: Mapping[str, Words] = {
    "gpushare": Words(
        "aliyun.com/gpu-mem",
        "aliyun.com/gpu-count",
        "ALIYUN_COM_GPU_MEM_IDX",
        "scheduler.framework.gpushare.allocation",
    ),
    # A block is as large as --gpu-memory-factor says, and only a node of ours tells it.
    "volcano": Words("volcano.sh/gpu-memory", "volcano.sh/gpu-number", "volcano.sh/gpu-index", small_unit="blocks"),
}


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
    pending: int = 0  # units of which nobody has said where they are

    @property
    def allocated(self) -> int:
        return sum(self.gpus.values()) + self.pending

    def times(self, scale: int) -> PodRow:
        gpus = {index: units * scale for index, units in self.gpus.items()}
        return PodRow(self.namespace, self.name, gpus, self.pending * scale)


class NodeRow(Struct, frozen=True):
    name: str
    address: str
    unit: str  # empty: nobody can tell
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
        """A node tells the sum: GPUs that differ are shown as if they did not."""
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


def survey(nodes: Iterable[NodeObject], pods: Iterable[PodObject], words: Words) -> Survey:
    notes = _Notes()
    by_node: dict[str, list[PodObject]] = {}
    for pod in pods:
        if pod.status.phase not in {"Succeeded", "Failed"}:
            by_node.setdefault(pod.spec.node_name, []).append(pod)
    seen = (_node(node, by_node.get(node.metadata.name, ()), words, notes) for node in nodes)
    rows = [row for row in seen if row is not None]
    found = Survey(tuple(rows))
    if not rows:
        notes.texts.append(f"no node here offers {words.memory}")
    if found.unit == MIXED:
        notes.texts.append("nodes count in different units: the sum over all of them means nothing")
    return Survey(found.nodes, tuple(notes.texts))


def _node(node: NodeObject, pods: Iterable[PodObject], words: Words, notes: _Notes) -> NodeRow | None:
    """None for a node without such memory. One whose plugin is away offers none now, and its pods run on."""
    name, offered = node.metadata.name, node.status.allocatable
    total = notes.amount(f"node {name}", offered, words.memory)
    if not total and not notes.amount(f"node {name}", node.status.capacity, words.memory):
        return None
    count = notes.amount(f"node {name}", offered, words.count)
    if count > GPUS_MAX:
        notes.texts.append(f"node {name}: {words.count} is {count}, which no node has. It counts as 0")
        count = 0
    elif not count:
        notes.texts.append(f"node {name} offers no {words.count}: only GPUs that pods name are shown")
    told_mib = read_unit(node.metadata.annotations or {}, words.memory, _capacity(node, words))
    scale, unit = _scale(told_mib) if told_mib else (1, "")
    rows = [row.times(scale) for pod in pods if (row := _pod(pod, words, notes)).allocated]
    for row in rows:
        for index in row.gpus:
            if count and index >= count:
                whose = f"pod {row.namespace}/{row.name}"
                notes.texts.append(f"{whose} is on GPU {index}, and node {name} counts {count}: 0 to {count - 1}")
    rows.sort(key=lambda row: min(row.gpus, default=GPUS_MAX))  # stable: the server's order is by name
    if not unit and count and total:
        unit = "MiB" if total // count > _LARGE else words.small_unit
    return NodeRow(name, _address(node), unit, count, total * scale, tuple(rows))


def _scale(unit_mib: int) -> tuple[int, str]:
    """Of how many GiB a unit is, or of how many MiB."""
    return (unit_mib // 1024, "GiB") if unit_mib % 1024 == 0 else (unit_mib, "MiB")


def _capacity(node: NodeObject, words: Words) -> int:
    try:
        return parse_amount((node.status.capacity or {}).get(words.memory, "0"))
    except InvalidQuantity:
        return 0


def _address(node: NodeObject) -> str:
    known = node.status.addresses or ()
    internal = (one.address for one in known if one.type == "InternalIP")
    return next(internal, known[0].address if known else "unknown")


def _pod(pod: PodObject, words: Words, notes: _Notes) -> PodRow:
    whose = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    row = partial(PodRow, pod.metadata.namespace, pod.metadata.name)
    wanted = _wanted(pod, partial(notes.amount, whose), words.memory)
    annotations = pod.metadata.annotations or {}
    if not wanted:
        return row({})
    if (text := annotations.get(words.per_container)) is not None:
        if (shares := _shares(text)) is not None:
            if sum(shares.values()) != wanted:
                notes.texts.append(
                    f"{whose} asks for {wanted}, and {words.per_container} gives it {sum(shares.values())}"
                )
            return row(shares)
        notes.texts.append(f"{whose}: {words.per_container} is {text!r:.60}, which cannot be read")
    if (text := annotations.get(words.device)) is None:
        return row({}, wanted)
    if (index := _index(text)) is not None:
        return row({index: wanted})
    notes.texts.append(
        f"{whose}: {words.device} is {text!r:.60}, which is not the index of one GPU. It counts as pending"
    )
    return row({}, wanted)


def _wanted(pod: PodObject, amount: partial[int], resource: str) -> int:
    """What the kubelet holds for a pod: its containers together, or more while an init container needs more."""
    most = sidecars = 0
    for container in pod.spec.init_containers or ():
        units = amount(container.resources.limits, resource)
        most = max(most, sidecars + units)
        if container.restart_policy == "Always":
            sidecars += units
    together = sum(amount(container.resources.limits, resource) for container in pod.spec.containers or ())
    return max(most, sidecars + together)


def _index(text: str) -> int | None:
    return int(text) if _INDEX.fullmatch(text) and int(text) < GPUS_MAX else None


def _shares(content: str) -> dict[int, int] | None:
    """Units by GPU of `{"0": {"1": 4}}`; None for what says nothing."""
    try:
        found = msgspec.json.decode(content, type=dict[str, dict[str, int]])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    shares: dict[int, int] = {}
    for container in found.values():
        for text, units in container.items():
            index = _index(text)
            if index is None or not 0 <= units <= AMOUNT_MAX:
                return None
            shares[index] = shares.get(index, 0) + units
    return {index: units for index, units in sorted(shares.items()) if units} or None
