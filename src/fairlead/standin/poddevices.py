"""The devices of pods: pod, container, resource, device ids by NUMA node, and the plugin's response.

Pure state, as in the kubelet's pod_devices.go. Knows neither health nor the life of pods; callers decide when to free.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp


@dataclass(frozen=True, slots=True)
class Allocation:
    """The devices of one resource in one container. A device on two NUMA nodes stands under both."""

    by_node: dict[int, tuple[str, ...]]
    response: dp.ContainerAllocateResponse

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(i for ids in self.by_node.values() for i in ids)


Key = tuple[str, str, str]  # pod uid, container, resource


@dataclass(slots=True)
class PodDevices:
    allocations: dict[Key, Allocation] = field(default_factory=dict)

    def put(self, uid: str, container: str, resource: str, allocation: Allocation) -> None:
        self.allocations[uid, container, resource] = allocation

    def ids(self, uid: str, container: str, resource: str) -> frozenset[str] | None:
        allocation = self.allocations.get((uid, container, resource))
        return None if allocation is None else allocation.ids

    def of_container(self, uid: str, container: str) -> dict[str, Allocation]:
        return {r: allocation for (u, c, r), allocation in self.allocations.items() if u == uid and c == container}

    def pods(self) -> set[str]:
        return {uid for uid, _, _ in self.allocations}

    def drop(self, uids: Iterable[str]) -> None:
        gone = set(uids)
        self.allocations = {key: allocation for key, allocation in self.allocations.items() if key[0] not in gone}

    def allocated(self) -> dict[str, set[str]]:
        """The ids in use, by resource, as the allocations tell."""
        used: dict[str, set[str]] = {}
        for (_, _, resource), allocation in self.allocations.items():
            used.setdefault(resource, set()).update(allocation.ids)
        return used

    def __iter__(self) -> Iterator[tuple[Key, Allocation]]:
        return iter(self.allocations.items())


@dataclass(frozen=True, slots=True)
class Mount:
    container_path: str
    host_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class DeviceNode:
    container_path: str
    host_path: str
    permissions: str


@dataclass(slots=True, kw_only=True)
class RunOptions:
    """What the runtime gets for one container, merged from the answers of all its resources."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, Mount] = field(default_factory=dict)
    nodes: dict[str, DeviceNode] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    cdi: tuple[str, ...] = ()


def merge(answers: Iterable[dp.ContainerAllocateResponse]) -> RunOptions:
    """One set of run options. Where two answers disagree, the first one stands."""
    merged = RunOptions()
    cdi: dict[str, None] = {}
    for answer in answers:
        for key, value in answer.envs.items():
            merged.env.setdefault(key, value)
        for mount in answer.mounts:
            entry = Mount(mount.container_path, mount.host_path, mount.read_only)
            merged.mounts.setdefault(mount.container_path, entry)
        for spec in answer.devices:
            node = DeviceNode(spec.container_path, spec.host_path, spec.permissions)
            merged.nodes.setdefault(spec.container_path, node)
        for key, value in answer.annotations.items():
            merged.annotations.setdefault(key, value)
        cdi.update(dict.fromkeys(device.name for device in answer.cdi_devices))
    merged.cdi = tuple(cdi)
    return merged
