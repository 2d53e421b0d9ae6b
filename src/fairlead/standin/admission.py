"""Admission: choosing devices for a container, calling the plugin, recording the allocation.

Owns the order of checks and their texts. Sees pods only as uids, names and limits; writes no file itself.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from fairlead.standin import topology
from fairlead.standin.devices import NO_NUMA, Endpoint, NodeDevices
from fairlead.standin.errors import CallFailed, KubeletPanicked, Rejected
from fairlead.standin.plugin import Plugin
from fairlead.standin.poddevices import Allocation, PodDevices, RunOptions, merge
from fairlead.standin.pods import Container, Pod
from fairlead.standin.setup import Setup

T = TypeVar("T")


class TopologyAffinityError(Exception):
    """The topology policy refuses the container."""


@dataclass(slots=True)
class Admission:
    node_devices: NodeDevices
    pod_devices: PodDevices
    setup: Setup
    # Writes the checkpoint.
    save: Callable[[], None]
    # Uids of the pods that keep their devices; the one being admitted is among them.
    active: Callable[[], set[str]]
    # Containers found running when the kubelet started; they count until the sources of pods are ready.
    was_running: frozenset[tuple[str, str]] = frozenset()
    sources_ready: bool = True
    _reusable: dict[str, set[str]] = field(default_factory=dict)
    _reusable_of: str = ""

    async def admit(self, pod: Pod) -> None:
        """Allocate devices to every container of the pod, init containers first. Raises what refuses the pod."""
        for container in pod.containers.values():
            hint, admitted = self._hint(pod, container)
            if not admitted:
                raise TopologyAffinityError("Resources cannot be allocated with Topology locality")
            await self.allocate(pod, container, hint)

    async def allocate(self, pod: Pod, container: Container, hint: topology.Hint | None = None) -> None:
        if self._reusable_of != pod.uid:
            self._reusable, self._reusable_of = {}, pod.uid
        await self._allocate(pod, container, None if hint is None else hint.nodes)
        for resource, allocation in self.pod_devices.of_container(pod.uid, container.name).items():
            # Only what a plain init container held is free for those after it.
            if container.kind == "init":
                self._reusable.setdefault(resource, set()).update(allocation.ids)
            else:
                self._reusable.get(resource, set()).difference_update(allocation.ids)

    async def run_options(self, pod: Pod, container: Container) -> RunOptions:
        """What the container starts with; asks PreStartContainer where the plugin wants it. Raises Rejected."""
        missing = False
        for resource, limit in self._shuffled(container.limits.items()):
            if not self.node_devices.knows(resource) or limit == 0:
                continue
            await self._pre_start(pod, container, resource)
            missing = missing or self.pod_devices.ids(pod.uid, container.name, resource) is None
        if missing and pod.uid in self.active():
            await self.allocate(pod, container)
        allocations = self.pod_devices.of_container(pod.uid, container.name)
        return merge(allocation.response for _, allocation in self._shuffled(allocations.items()))

    def free_inactive(self) -> None:
        """Give back the devices of pods that are no longer active. Waits until all pods are known."""
        if not self.sources_ready:
            return
        gone = self.pod_devices.pods() - self.active()
        if gone:
            self.pod_devices.drop(gone)
            self.node_devices.allocated = self.pod_devices.allocated()

    async def _allocate(self, pod: Pod, container: Container, nodes: frozenset[int] | None) -> None:
        freed = changed = False
        for resource, limit in self._shuffled(container.limits.items()):
            if not self.node_devices.knows(resource):
                continue  # no plugin registered the name: the kubelet gives nothing, and says nothing
            if not freed:
                self.free_inactive()
                freed = True
            ids = await self._choose(pod, container, resource, limit, nodes)
            if not ids:
                continue
            changed = True
            allocation = await self._ask(resource, ids)
            self.pod_devices.put(pod.uid, container.name, resource, allocation)
        if changed:
            self.save()

    async def _ask(self, resource: str, ids: set[str]) -> Allocation:
        endpoint = self.node_devices.endpoints.get(resource)
        if endpoint is None:
            self.node_devices.allocated = self.pod_devices.allocated()
            raise Rejected(f"unknown Device Plugin {resource}")
        try:
            plugin = _live(endpoint, resource)
            answer = await plugin.allocate(self._shuffled(ids))
        except (CallFailed, Rejected) as error:
            self.node_devices.allocated = self.pod_devices.allocated()
            raise Rejected(str(error)) from None
        if not answer.container_responses:
            if not self.setup.defects.leak_on_empty_answer:
                self.node_devices.allocated = self.pod_devices.allocated()
            # The kubelet prints the answer here, and an empty one prints as nothing.
            raise Rejected("no containers return in allocation response ")
        return Allocation(self._by_node(resource, ids), answer.container_responses[0])

    def _by_node(self, resource: str, ids: set[str]) -> dict[int, tuple[str, ...]]:
        by_node: dict[int, list[str]] = {}
        for i in self._shuffled(ids):
            try:
                nodes = self.node_devices.nodes_of(resource, i)
            except KeyError:
                raise KubeletPanicked(
                    f"device {i!r} of {resource} left the list while Allocate for it was running: a real kubelet "
                    f"dereferences nil here and crashes. Report such a device Unhealthy until it is free"
                ) from None
            for node in nodes or (NO_NUMA,):
                by_node.setdefault(node, []).append(i)
        return {node: tuple(members) for node, members in by_node.items()}

    async def _choose(
        self, pod: Pod, container: Container, resource: str, required: int, nodes: frozenset[int] | None
    ) -> set[str]:
        """The ids to ask for; empty when nothing more is needed."""
        stored = self.pod_devices.ids(pod.uid, container.name, resource)
        if stored is not None and len(stored) != required:
            raise Rejected(
                f'pod "{pod.uid}" container "{container.name}" changed request for resource "{resource}" '
                f"from {len(stored)} to {required}"
            )
        if not self.sources_ready and (pod.uid, container.name) in self.was_running:
            return set()
        healthy = self.node_devices.healthy.get(resource)
        if healthy is None:
            raise Rejected(f"cannot allocate unregistered device {resource}")
        if not healthy:
            raise Rejected(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if stored is not None and not stored <= healthy:
            raise Rejected(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
        if stored is not None or required == 0:
            return set()
        return await self._pick(resource, required, nodes)

    async def _pick(self, resource: str, required: int, nodes: frozenset[int] | None) -> set[str]:
        taken: set[str] = set()

        def take(candidates: Collection[str]) -> bool:
            """Allocate as many as are still needed, at random. True when there are enough."""
            fresh = sorted(set(candidates) - taken)
            chosen = self.setup.rng.sample(fresh, min(len(fresh), required - len(taken)))
            self.node_devices.allocated.setdefault(resource, set()).update(chosen)
            taken.update(chosen)
            return len(taken) == required

        # The health of devices that init containers leave behind is not checked again.
        if take(self._reusable.get(resource, set())):
            return taken
        needed = required - len(taken)
        available = self.node_devices.available(resource)
        if len(available) < needed:
            raise Rejected(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {needed}, Available: {len(available)}"
            )
        places = {i: device.nodes for i, device in self.node_devices.all.get(resource, {}).items()}
        aligned, unaligned, without = topology.split(available, places, nodes)
        if needed < len(aligned):
            answer = await self._prefer(resource, aligned | taken, taken, required)
            if take(answer & aligned) or take(aligned):
                return taken
        else:
            if take(aligned):
                return taken
            answer = await self._prefer(resource, available | taken, taken, required)
            if take(answer & available) or take(unaligned) or take(without):
                return taken
        raise Rejected(f"unexpectedly allocated less resources than required. Requested: {required}, Got: {len(taken)}")

    async def _prefer(self, resource: str, available: set[str], must: set[str], size: int) -> set[str]:
        endpoint = self._endpoint(resource)
        if endpoint.options is None or not endpoint.options.get_preferred_allocation_available:
            return set()
        try:
            plugin = _live(endpoint, resource)
            ids = await plugin.prefer(self._shuffled(available), self._shuffled(must), size)
        except (CallFailed, Rejected) as error:
            raise Rejected(f"device plugin GetPreferredAllocation rpc failed with err: {error}") from None
        return set(ids or ())

    async def _pre_start(self, pod: Pod, container: Container, resource: str) -> None:
        endpoint = self._endpoint(resource)
        if endpoint.options is None or not endpoint.options.pre_start_required:
            return
        ids = self.pod_devices.ids(pod.uid, container.name, resource)
        if ids is None:
            raise Rejected(
                f"no devices found allocated in local cache for pod {pod.uid}, "
                f"container {container.name}, resource {resource}"
            )
        try:
            await _live(endpoint, resource).pre_start(self._shuffled(ids))
        except (CallFailed, Rejected) as error:
            raise Rejected(f"device plugin PreStartContainer rpc failed with err: {error}") from None

    def _endpoint(self, resource: str) -> Endpoint:
        endpoint = self.node_devices.endpoints.get(resource)
        if endpoint is None:
            raise Rejected(f"endpoint not found in cache for a registered resource: {resource}")
        return endpoint

    def _hint(self, pod: Pod, container: Container) -> tuple[topology.Hint, bool]:
        groups = [
            self._hints(pod, container, resource, limit)
            for resource, limit in container.limits.items()
            if self.setup.policy != "none" and self.node_devices.knows(resource)
        ]
        return topology.decide(self.setup.policy, groups, self.setup.numa_nodes)

    def _hints(self, pod: Pod, container: Container, resource: str, request: int) -> list[topology.Hint] | None:
        if not self.node_devices.is_topology_aware(resource):
            return None
        places = {i: device.nodes for i, device in self.node_devices.all.get(resource, {}).items()}
        stored = self.pod_devices.ids(pod.uid, container.name, resource)
        if stored:
            if len(stored) != request:
                return []
            return topology.hints_for(places, stored, (), request, self.setup.numa_nodes)
        available = self.node_devices.available(resource)
        reusable = self._reusable.get(resource, set()) if self._reusable_of == pod.uid else set()
        if len(available | reusable) < request:
            return []
        return topology.hints_for(places, available, reusable, request, self.setup.numa_nodes)

    def _shuffled(self, items: Iterable[T]) -> list[T]:
        """Any order, as Go's maps and sets give it, but the same one for the same seed."""
        ordered = sorted(items, key=str)
        self.setup.rng.shuffle(ordered)
        return ordered


def _live(endpoint: Endpoint, resource: str) -> Plugin:
    if endpoint.stopped_at_s is not None or not isinstance(endpoint.plugin, Plugin):
        raise Rejected(f"endpoint {endpoint.plugin or f'&{{{resource}}}'} has been stopped")
    return endpoint.plugin
