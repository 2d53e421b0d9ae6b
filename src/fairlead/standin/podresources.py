"""The pod-resources service: what the kubelet tells monitoring about devices in use.

Owns the shape of the answers and the rate limit. Reads the devices and the pods; changes neither.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from fairlead.standin._gen import podresources_v1_pb2 as pr
from fairlead.standin.devices import NO_NUMA, NodeDevices
from fairlead.standin.poddevices import PodDevices
from fairlead.standin.pods import Pod

T = TypeVar("T")
RATE_LIMITED = "rejected by rate limit"


@dataclass(slots=True)
class Limiter:
    """A bucket of `burst` tokens that fills at `per_second`."""

    now: Callable[[], float]
    per_second: float = 100.0
    burst: int = 10
    _tokens: float = -1.0
    _filled_at_s: float = 0.0

    def take(self) -> bool:
        now_s = self.now()
        if self._tokens < 0:
            self._tokens = self.burst
        else:
            self._tokens = min(self.burst, self._tokens + (now_s - self._filled_at_s) * self.per_second)
        self._filled_at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def list_pods(pods: Iterable[Pod], pod_devices: PodDevices, rng: random.Random) -> pr.ListPodResourcesResponse:
    return pr.ListPodResourcesResponse(
        pod_resources=[describe(pod, pod_devices, rng) for pod in _in_any_order(pods, rng) if pod.is_active]
    )


def describe(pod: Pod, pod_devices: PodDevices, rng: random.Random) -> pr.PodResources:
    """Sidecars first, then the app's containers. Plain init containers are not shown."""
    containers = [*pod.of_kind("sidecar"), *pod.of_kind("app")]
    return pr.PodResources(
        name=pod.name,
        namespace=pod.namespace,
        containers=[
            pr.ContainerResources(
                name=container.name,
                devices=_in_any_order(_allocated(pod_devices, pod.uid, container.name), rng),
            )
            for container in containers
        ],
    )


def allocatable(node_devices: NodeDevices, rng: random.Random) -> pr.AllocatableResourcesResponse:
    """Every healthy device, in use or not."""
    entries = (
        _entry(resource, i, node)
        for resource, healthy in node_devices.healthy.items()
        for i in sorted(healthy)
        for node in node_devices.nodes_of(resource, i) or (NO_NUMA,)
    )
    return pr.AllocatableResourcesResponse(devices=_in_any_order(entries, rng))


def without_topology(answer: pr.ListPodResourcesResponse) -> pr.ListPodResourcesResponse:
    """The v1alpha1 answer: the same bytes on the wire, less the fields that came later."""
    old = pr.ListPodResourcesResponse()
    old.CopyFrom(answer)
    for pod in old.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                devices.ClearField("topology")
    return old


def _allocated(pod_devices: PodDevices, uid: str, container: str) -> Iterator[pr.ContainerDevices]:
    for resource, allocation in pod_devices.of_container(uid, container).items():
        for node, ids in allocation.by_node.items():
            for i in ids:
                yield _entry(resource, i, node)


def _entry(resource: str, device_id: str, node: int) -> pr.ContainerDevices:
    """One device on one NUMA node. A device without topology leaves the field out."""
    entry = pr.ContainerDevices(resource_name=resource, device_ids=[device_id])
    if node != NO_NUMA:
        entry.topology.nodes.add(ID=node)
    return entry


def _in_any_order(items: Iterable[T], rng: random.Random) -> list[T]:
    ordered = list(items)
    rng.shuffle(ordered)
    return ordered
