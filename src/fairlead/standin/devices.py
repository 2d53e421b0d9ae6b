"""The device manager's memory: endpoints, device lists, health sets and what they count to.

Pure state. Makes no call and writes no file; the time is handed in.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
NO_NUMA = -1


@dataclass(frozen=True, slots=True)
class Device:
    id: str
    health: str = HEALTHY
    nodes: tuple[int, ...] = ()


@dataclass(slots=True)
class Endpoint:
    """One registration. `plugin` is None when it is only remembered from the checkpoint."""

    plugin: object | None
    options: dp.DevicePluginOptions | None
    stopped_at_s: float | None = None


@dataclass(slots=True)
class NodeDevices:
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    all: dict[str, dict[str, Device]] = field(default_factory=dict)
    healthy: dict[str, set[str]] = field(default_factory=dict)
    unhealthy: dict[str, set[str]] = field(default_factory=dict)
    allocated: dict[str, set[str]] = field(default_factory=dict)

    def replace(self, resource: str, devices: Iterable[Device]) -> None:
        """Take a new list in place of the old one, whole. Only the exact word counts as healthy."""
        listed = tuple(devices)
        self.all[resource] = {device.id: device for device in listed}
        # An id listed twice, once in each state, is in both sets: the kubelet counts it twice.
        self.healthy[resource] = {device.id for device in listed if device.health == HEALTHY}
        self.unhealthy[resource] = {device.id for device in listed if device.health != HEALTHY}

    def stop(self, resource: str, now_s: float) -> None:
        """The plugin of this resource is gone: its devices are unhealthy and the grace period starts."""
        if (endpoint := self.endpoints.get(resource)) is None:
            return
        lost = self.healthy.get(resource, set())
        if resource in self.healthy:
            self.healthy[resource] = set()
        self.unhealthy[resource] = self.unhealthy.get(resource, set()) | lost
        endpoint.stopped_at_s = now_s

    def restore(self, resources: Iterable[str], now_s: float) -> None:
        """Resources named in the checkpoint are known, empty and stopped until their plugin is back."""
        for resource in resources:
            self.healthy[resource] = set()
            self.unhealthy[resource] = set()
            self.endpoints[resource] = Endpoint(None, None, stopped_at_s=now_s)

    def expire(self, now_s: float, grace_s: float) -> tuple[str, ...]:
        """Forget the resources whose plugin has been away for strictly more than the grace period."""
        known = self.healthy.keys() | self.unhealthy.keys()
        gone = sorted(resource for resource in known if self._is_expired(resource, now_s, grace_s))
        for resource in gone:
            self.endpoints.pop(resource, None)
            self.healthy.pop(resource, None)
            self.unhealthy.pop(resource, None)
        return tuple(gone)

    def _is_expired(self, resource: str, now_s: float, grace_s: float) -> bool:
        endpoint = self.endpoints.get(resource)
        if endpoint is None:
            return True
        return endpoint.stopped_at_s is not None and now_s - endpoint.stopped_at_s > grace_s

    def allocatable(self) -> dict[str, int]:
        return {name: len(self.healthy.get(name, ())) for name in self.healthy.keys() | self.unhealthy.keys()}

    def capacity(self) -> dict[str, int]:
        return {name: count + len(self.unhealthy.get(name, ())) for name, count in self.allocatable().items()}

    def knows(self, resource: str) -> bool:
        """Whether admission treats this name as a device plugin's resource."""
        return resource in self.healthy or resource in self.allocated

    def available(self, resource: str) -> set[str]:
        return self.healthy.get(resource, set()) - self.allocated.get(resource, set())

    def is_topology_aware(self, resource: str) -> bool:
        return any(device.nodes for device in self.all.get(resource, {}).values())

    def nodes_of(self, resource: str, device_id: str) -> tuple[int, ...]:
        return self.all.get(resource, {})[device_id].nodes

    def health(self, resource: str) -> dict[str, str]:
        """Every known id with its state; healthy wins for an id that is in both sets."""
        ids = self.healthy.get(resource, set()) | self.unhealthy.get(resource, set())
        return {i: HEALTHY if i in self.healthy.get(resource, ()) else UNHEALTHY for i in sorted(ids)}
