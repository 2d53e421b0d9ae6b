"""All of the pod-resources API, v1: more kinds of fields than those that Fairlead reads."""

from __future__ import annotations

from fairlead.wire.proto import field, message


@message
class NUMANode:
    id: int = field(1)


@message
class TopologyInfo:
    nodes: tuple[NUMANode, ...] = field(1)


@message
class ContainerDevices:
    resource_name: str = field(1)
    device_ids: tuple[str, ...] = field(2)
    topology: TopologyInfo | None = field(3)


@message
class ContainerMemory:
    memory_type: str = field(1)
    size: int = field(2, kind="uint64")
    topology: TopologyInfo | None = field(3)


@message
class CDIDevice:
    name: str = field(1)


@message
class ClaimResource:
    cdi_devices: tuple[CDIDevice, ...] = field(1)
    driver_name: str = field(2)
    pool_name: str = field(3)
    device_name: str = field(4)
    share_id: str | None = field(5)


@message
class DynamicResource:
    claim_name: str = field(2)
    claim_namespace: str = field(3)
    claim_resources: tuple[ClaimResource, ...] = field(4)


@message
class ContainerResources:
    name: str = field(1)
    devices: tuple[ContainerDevices, ...] = field(2)
    cpu_ids: tuple[int, ...] = field(3)
    memory: tuple[ContainerMemory, ...] = field(4)
    dynamic_resources: tuple[DynamicResource, ...] = field(5)


@message
class PodResources:
    name: str = field(1)
    namespace: str = field(2)
    containers: tuple[ContainerResources, ...] = field(3)


@message
class ListPodResourcesResponse:
    pod_resources: tuple[PodResources, ...] = field(1)
