"""What is read of the kubelet's pod-resources API, v1. Field numbers are `proto/podresources_v1.proto`'s.

Its answers hold more: CPUs, memory, NUMA nodes and claims. What has no field here is skipped.
"""

from __future__ import annotations

from fairlead.wire.method import Method
from fairlead.wire.proto import field, message


@message
class ContainerDevices:
    resource_name: str = field(1)
    device_ids: tuple[str, ...] = field(2)


@message
class ContainerResources:
    name: str = field(1)
    devices: tuple[ContainerDevices, ...] = field(2)


@message
class PodResources:
    name: str = field(1)
    namespace: str = field(2)
    containers: tuple[ContainerResources, ...] = field(3)


@message
class ListPodResourcesRequest:
    pass


@message
class ListPodResourcesResponse:
    pod_resources: tuple[PodResources, ...] = field(1)


LIST = Method("/v1.PodResourcesLister/List", ListPodResourcesRequest, ListPodResourcesResponse)
