"""Reader: what nodes offer and what pods ask for and have, read from objects. Copies of a pod or node are read once."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fairlead.model.pod import Pod
from fairlead.policy.packing.demand import keys, node_keys, node_settings, read_demand, read_shares
from fairlead.policy.packing.node import Demand, DeviceRoom, Preference, Share
from fairlead.policy.packing.told import read_devices
from fairlead.policy.pods.contract import Contract
from fairlead.policy.pods.requests import Fault
from fairlead.scheduler.alike import Alike, Worked
from fairlead.scheduler.objects import GROUP_LABELS, NodeObject, PodObject, PodParts, SeenPod, read_parts, read_pod

COPIES_MAX = 1000  # pods and nodes that differ, and are not read again
NODES_MAX = 16  # kinds of nodes that copies of a pod are on

Demands = tuple[tuple[int, Demand], ...]  # by the position of the contract
Shares = tuple[Share, ...]


class Node(Struct, frozen=True):
    """What was read of a node, for each of the contracts."""

    devices: tuple[tuple[DeviceRoom, ...], ...]
    preferences: tuple[Preference, ...]
    pods_max: tuple[int, ...]


class Shape(Struct, eq=False):
    """What was read of a pod and holds for all its copies."""

    parts: PodParts
    demands: Demands | Fault
    shares: Worked[Shares | Fault | None]  # by the devices of its node and the contract


class Reader:
    """`preferences`: by contract, of nodes that say nothing of it."""

    def __init__(self, contracts: Sequence[Contract], preferences: Sequence[Preference]) -> None:
        self._contracts, self._preferences = tuple(contracts), tuple(preferences)
        self._keys = keys(contracts) | frozenset(GROUP_LABELS)
        self._alike = Alike(self._keys, node_keys(contracts))
        self._shapes: Worked[Shape] = Worked(COPIES_MAX)
        self._nodes: Worked[Node] = Worked(COPIES_MAX)

    def keeps(self, key: str) -> bool:
        """Annotations and labels of pods that are worth memory."""
        return key in self._keys

    def small_pod(self, found: PodObject) -> PodObject:
        """As much of it as is read."""
        return self._alike.pod(found)

    def small_node(self, found: NodeObject) -> NodeObject:
        """As much of it as is read."""
        return self._alike.node(found)

    def node(self, found: NodeObject) -> Node:
        small = self._alike.node(found)
        if small.metadata.annotations:
            return self._read_node(small)
        return self._nodes.get((small.metadata.labels, small.status), lambda: self._read_node(small))

    def _read_node(self, found: NodeObject) -> Node:
        annotations, labels = found.metadata.annotations or {}, found.metadata.labels or {}
        capacity, allocatable = found.status.capacity or {}, found.status.allocatable or {}
        devices, preferences, most = [], [], []
        for contract, preference in zip(self._contracts, self._preferences, strict=True):
            devices.append(self._alike.devices(read_devices(annotations, capacity, allocatable, contract)))
            word, pods_max = node_settings(labels, contract)
            preferences.append(Preference(word) if word in list(Preference) else preference)
            most.append(pods_max)
        return Node(tuple(devices), tuple(preferences), tuple(most))

    def pod(self, found: PodObject, *, small: bool = False) -> tuple[SeenPod, Shape]:
        """`small`: it is what `small_pod` made."""
        return self._pod(found if small else self._alike.pod(found))

    def _pod(self, small: PodObject) -> tuple[SeenPod, Shape]:
        meta, spec = small.metadata, small.spec
        shape = self._shapes.get(
            (meta.annotations, meta.labels, spec.init_containers, spec.containers), lambda: self._shape(small)
        )
        return read_pod(small, self.keeps, shape.parts), shape

    def _shape(self, found: PodObject) -> Shape:
        parts = read_parts(found, self.keeps)
        return Shape(parts, self.demands(read_pod(found, self.keeps, parts).pod), Worked(NODES_MAX))

    def demands(self, pod: Pod) -> Demands | Fault:
        found = []
        for position, contract in enumerate(self._contracts):
            demand = read_demand(pod, contract)
            if isinstance(demand, Fault):
                return demand
            if demand is not None:
                found.append((position, demand))
        return tuple(found)


def read_copies_shares(
    pod: Pod, demand: Demand, contract: Contract, devices: tuple[DeviceRoom, ...], shape: Shape | None
) -> Shares | Fault | None:
    """What the pod has, as it says itself. Of devices with ids there are no copies."""
    if shape is None or (devices and devices[0].id):
        return read_shares(pod, demand, contract, devices)
    return shape.shares.get((devices, contract), lambda: read_shares(pod, demand, contract, devices))
