"""The kubelet's device-plugin API, v1beta1, as messages and methods. Numbers: `proto/deviceplugin_v1beta1.proto`."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.wire.method import Method
from fairlead.wire.proto import field, message

VERSION = "v1beta1"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
UNHEALTHY_SHORT = "Unwell"  # means the same: to the kubelet all is unhealthy that is not Healthy
# What the kubelet asks for is bounded by the list that it was sent: 4 MiB have room for 300,000 devices at most. It
# asks for one container at a time.
MAX_IDS = 300_000
MAX_CONTAINERS = 1024


@message
class Empty:
    pass


@message
class DevicePluginOptions:
    pre_start_required: bool = field(1)
    get_preferred_allocation_available: bool = field(2)


@message
class RegisterRequest:
    version: str = field(1)
    endpoint: str = field(2)
    resource_name: str = field(3)
    options: DevicePluginOptions | None = field(4)


@message
class NUMANode:
    id: int = field(1)


@message
class TopologyInfo:
    nodes: tuple[NUMANode, ...] = field(1)


@message
class Device:
    id: str = field(1)
    health: str = field(2)
    topology: TopologyInfo | None = field(3)


@message
class ListAndWatchResponse:
    devices: tuple[Device, ...] = field(1)


@message
class PreStartContainerRequest:
    device_ids: tuple[str, ...] = field(1, most=MAX_IDS)


@message
class PreStartContainerResponse:
    pass


@message
class ContainerPreferredAllocationRequest:
    available_ids: tuple[str, ...] = field(1, most=MAX_IDS)
    must_include_ids: tuple[str, ...] = field(2, most=MAX_IDS)
    allocation_size: int = field(3, kind="int32")


@message
class PreferredAllocationRequest:
    container_requests: tuple[ContainerPreferredAllocationRequest, ...] = field(1, most=MAX_CONTAINERS)


@message
class ContainerPreferredAllocationResponse:
    device_ids: tuple[str, ...] = field(1)


@message
class PreferredAllocationResponse:
    container_responses: tuple[ContainerPreferredAllocationResponse, ...] = field(1)


@message
class ContainerAllocateRequest:
    device_ids: tuple[str, ...] = field(1, most=MAX_IDS)


@message
class AllocateRequest:
    container_requests: tuple[ContainerAllocateRequest, ...] = field(1, most=MAX_CONTAINERS)


@message
class Mount:
    container_path: str = field(1)
    host_path: str = field(2)
    read_only: bool = field(3)


@message
class DeviceSpec:
    container_path: str = field(1)
    host_path: str = field(2)
    permissions: str = field(3)


@message
class CDIDevice:
    name: str = field(1)


@message
class ContainerAllocateResponse:
    envs: Mapping[str, str] = field(1)
    mounts: tuple[Mount, ...] = field(2)
    devices: tuple[DeviceSpec, ...] = field(3)
    annotations: Mapping[str, str] = field(4)
    cdi_devices: tuple[CDIDevice, ...] = field(5)


@message
class AllocateResponse:
    container_responses: tuple[ContainerAllocateResponse, ...] = field(1)


REGISTER = Method("/v1beta1.Registration/Register", RegisterRequest, Empty)
GET_OPTIONS = Method("/v1beta1.DevicePlugin/GetDevicePluginOptions", Empty, DevicePluginOptions)
LIST_AND_WATCH = Method("/v1beta1.DevicePlugin/ListAndWatch", Empty, ListAndWatchResponse, streaming=True)
GET_PREFERRED_ALLOCATION = Method(
    "/v1beta1.DevicePlugin/GetPreferredAllocation", PreferredAllocationRequest, PreferredAllocationResponse
)
ALLOCATE = Method("/v1beta1.DevicePlugin/Allocate", AllocateRequest, AllocateResponse)
PRE_START_CONTAINER = Method(
    "/v1beta1.DevicePlugin/PreStartContainer", PreStartContainerRequest, PreStartContainerResponse
)
