"""The status of a daemon: one typed answer for the command line, the demo, metrics and tests.

Owns its shape, which is the shape of the JSON on the daemon's socket, and how it is made. `app` collects a `Snapshot`
on the event loop; the status is made of it on any thread. A reader ignores fields that only a newer daemon knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from fairlead._version import __version__
from fairlead.model.device import Device
from fairlead.model.errors import FairleadError
from fairlead.model.holdings import Holder, Holdings, Unknown
from fairlead.model.inventory import Conditions, Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource
from fairlead.policy.cordon import Cordon
from fairlead.policy.offering.rules import Offering
from fairlead.policy.offering.stall import Stall, explain_stall, stalls

T = TypeVar("T")
TWICE_SHOWN = 8  # slots that two pods hold
Held = tuple[ResourceName, SlotId]


class BackendStatus(Struct, frozen=True):
    name: str
    devices: int
    scanned_s: float | None  # the last scan that worked
    problem: str


class DeviceFacts(Struct, frozen=True, kw_only=True):
    """What a backend says of a device."""

    id: str
    index: str
    vendor: str
    model: str
    memory_bytes: int
    pci_address: str
    numa_nodes: tuple[int, ...]
    nodes: tuple[str, ...]
    parent: str | None
    backend: str


class DeviceStatus(DeviceFacts, frozen=True, kw_only=True):
    health: str
    cause: str
    cured_by: tuple[str, ...]
    since_s: float  # wall time; 0: since it was found
    resource: str | None
    rule: str
    slots: int
    held: int
    holders: tuple[str, ...]


class ResourceFacts(Struct, frozen=True, kw_only=True):
    """What the rules make of a resource, and how long its list keeps the kubelet busy when pods hold all of it."""

    name: str
    unit_bytes: int
    wish_bytes: int
    note: str
    placement: str
    stall_s: float
    stall_long: bool
    stall: str  # in words; empty when it is too short to mention


class EndpointFacts(Struct, frozen=True, kw_only=True):
    """The server of one resource, and its registration."""

    list_bytes: int
    socket: str
    phase: str
    since_s: float
    reason: str
    attempt: int
    problem: str


class ResourceStatus(ResourceFacts, frozen=True, kw_only=True):
    slots: int
    healthy: int
    held: int
    free: int = 0  # usable, and held by no container
    retired: int
    # As in `EndpointFacts`:
    list_bytes: int
    socket: str
    phase: str
    since_s: float
    reason: str
    attempt: int
    problem: str


class CordonStatus(Struct, frozen=True, kw_only=True):
    """A device that an operator keeps from new pods. It may be gone for now."""

    device: str
    reason: str
    since_s: float
    until_s: float | None  # None: until `fairlead uncordon`


class DoctorSummary(Struct, frozen=True, kw_only=True):
    """What the last `fairlead doctor` beside this daemon found. It is kept in memory only."""

    at_s: float
    errors: Annotated[int, Meta(ge=0)]
    warnings: Annotated[int, Meta(ge=0)]
    notes: Annotated[int, Meta(ge=0)] = 0
    codes: Annotated[tuple[Annotated[str, Meta(pattern="^D[0-9]{2}$")], ...], Meta(max_length=99)] = ()

    def __str__(self) -> str:
        counts = {"error": self.errors, "warning": self.warnings, "note": self.notes}
        found = [f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count]
        return f"{', '.join(found)} ({', '.join(self.codes)})" if found else "nothing found"


class Status(Struct, frozen=True, kw_only=True):
    version: str
    pid: int
    instance: str
    started_s: float
    now_s: float
    config: str
    directory: str
    holders_known: bool
    holders_problem: str
    backends: tuple[BackendStatus, ...]
    devices: tuple[DeviceStatus, ...]
    resources: tuple[ResourceStatus, ...]
    cordons: tuple[CordonStatus, ...] = ()
    doctor: DoctorSummary | None = None  # None: not since this daemon was started
    storms: tuple[str, ...] = ()  # requests that are refused again and again: a fault of pods, and not of this node
    problems: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether every resource is registered, every device is healthy, and something is offered."""
        registered = all(resource.phase == "streaming" for resource in self.resources)
        healthy = all(device.health == "healthy" for device in self.devices)
        return bool(registered and healthy and self.resources and not self.problems)


class Snapshot(Struct, frozen=True, kw_only=True):
    """What a daemon knows at one moment. Immutable values: another thread may read them."""

    pid: int
    instance: str
    started_s: float
    now_s: float
    monotonic_s: float
    config: str
    directory: str
    holdings: Holdings | Unknown
    holders_problem: str
    backends: tuple[BackendStatus, ...]
    inventory: Inventory
    conditions: Conditions
    offering: Offering
    endpoints: tuple[tuple[Resource, EndpointFacts], ...]
    elsewhere: Mapping[Held, DeviceId]  # slots whose container was given another device than the slot's own
    cordons: tuple[Cordon, ...] = ()
    doctor: DoctorSummary | None = None
    storms: tuple[str, ...] = ()
    problems: tuple[str, ...]


def make_status(now: Snapshot) -> Status:
    holders = now.holdings.by_slot if isinstance(now.holdings, Holdings) else {}
    costs = stalls(resource for resource, _ in now.endpoints)
    return Status(
        version=__version__,
        pid=now.pid,
        instance=now.instance,
        started_s=now.started_s,
        now_s=now.now_s,
        config=now.config,
        directory=now.directory,
        holders_known=isinstance(now.holdings, Holdings),
        holders_problem=now.holders_problem,
        backends=now.backends,
        devices=tuple(_devices(now, holders)),
        resources=tuple(
            _resource(resource, now.conditions, endpoint, holders, costs[resource.name])
            for resource, endpoint in now.endpoints
        ),
        cordons=tuple(map(cordon_status, now.cordons)),
        doctor=now.doctor,
        storms=now.storms,
        problems=(*now.problems, *_held_twice(now)),
    )


def cordon_status(cordon: Cordon) -> CordonStatus:
    return CordonStatus(device=cordon.device, reason=cordon.reason, since_s=cordon.at_s, until_s=cordon.until_s)


def _held_twice(now: Snapshot) -> list[str]:
    """Of our own resources. Two pods on one device is what a device plugin is there to prevent."""
    if not isinstance(now.holdings, Holdings):
        return []
    names = {resource.name for resource, _ in now.endpoints}
    return [
        f"{name}: {slot} is held by {first} and by {now.holdings.by_slot[name, slot]}: the kubelet gave it out twice. "
        "Delete one of the pods"
        for (name, slot), first in sorted(now.holdings.twice.items(), key=lambda item: item[0])
        if name in names
    ][:TWICE_SHOWN]


def _resource(
    resource: Resource,
    conditions: Conditions,
    endpoint: EndpointFacts,
    holders: Mapping[Held, Holder],
    stall: Stall,
) -> ResourceStatus:
    retired = sum(slot.retired_s is not None for slot in resource.slots)
    usable = [slot for slot in resource.slots if slot.usable(conditions)]
    return ResourceStatus(
        **resource_facts(resource, stall),
        slots=len(resource.slots) - retired,
        healthy=len(usable),
        held=sum((resource.name, slot.id) in holders for slot in resource.slots),
        free=sum((resource.name, slot.id) not in holders for slot in usable),
        retired=retired,
        **asdict(endpoint),
    )


def resource_facts(resource: Resource, stall: Stall) -> dict[str, Any]:
    """The fields of `ResourceFacts`."""
    return {
        "name": resource.name,
        "unit_bytes": resource.unit_bytes,
        "wish_bytes": resource.wanted_unit_bytes,
        "note": resource.note,
        "placement": resource.terms.strategy.value,
        "stall_s": stall.seconds,
        "stall_long": stall.long,
        "stall": explain_stall(stall, memory=bool(resource.unit_bytes)),
    }


def _devices(now: Snapshot, holders: Mapping[Held, Holder]) -> list[DeviceStatus]:
    matches = {match.device: match for match in now.offering.matches}
    served = {resource.name: resource for resource, _ in now.endpoints}
    rows = []
    for device in now.inventory.devices:
        match = matches.get(device.id)
        resource = served.get(match.resource) if match and match.resource else None
        slots = resource.slots_of.get(device.id, ()) if resource else ()
        own = [(resource.name, slot.id) for slot in slots if resource]
        held = [holders[key] for key in own if key in holders and key not in now.elsewhere]
        held += [holders[key] for key, where in now.elsewhere.items() if where == device.id and key in holders]
        condition = now.conditions.of(device.id)
        rows.append(
            DeviceStatus(
                **device_facts(device),
                health=condition.health.value,
                cause=str(condition.cause) if condition.cause else "",
                cured_by=condition.cause.cured_by if condition.cause else (),
                since_s=condition.since_s + now.now_s - now.monotonic_s if condition.since_s else 0.0,
                resource=match.resource if match else None,
                rule=match.label if match else "",
                slots=len(slots),
                held=len(held),
                holders=tuple(sorted({str(holder) for holder in held})),
            )
        )
    return rows


def device_facts(device: Device) -> dict[str, Any]:
    """The fields of `DeviceFacts`."""
    facts = {name: getattr(device, name) for name in DeviceFacts.__struct_fields__}
    return facts | {"nodes": tuple(node.path for node in device.nodes)}


def decode(answer: Any, shape: type[T]) -> T:
    """An answer of a daemon as the struct that it was made from. FairleadError when a field is missing."""
    try:
        return msgspec.convert(answer, shape)
    except msgspec.ValidationError as error:
        raise FairleadError(f"the daemon's answer is not understood: {error}. Is it of another version?") from error
