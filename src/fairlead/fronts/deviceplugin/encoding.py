"""Device lists and container edits as the kubelet's messages. Encodes; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.edits import Edits
from fairlead.model.errors import Oversize
from fairlead.model.inventory import Conditions
from fairlead.model.names import DeviceId
from fairlead.model.resource import Resource, Slot
from fairlead.policy.offering import budget
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import encode
from fairlead.wire.varint import write_varint


class DeviceList(Struct, frozen=True):
    """A resource as the kubelet is sent it: encoded once for all streams, and under which conditions."""

    resource: Resource
    conditions: Conditions
    parts: Mapping[DeviceId, bytes]  # the slots of one device each
    frame: bytes
    repeats: int = 0  # how often the kubelet was sent a list that had not changed


def make_device_list(resource: Resource, conditions: Conditions) -> DeviceList:
    """Encodes the list, after checking that the kubelet would take it."""
    budget.check(resource)
    return encode_devices(resource, conditions)


def encode_devices(resource: Resource, conditions: Conditions) -> DeviceList:
    parts = {device: _encode_device(resource, conditions, device) for device in resource.slots_of}
    return DeviceList(resource, conditions, parts, b"".join(parts.values()))


def with_conditions(known: DeviceList, conditions: Conditions) -> DeviceList:
    """The same list under other conditions. A fault costs the encoding of its own device's slots, not of 60,000."""
    changed = (conditions.unhealthy ^ known.conditions.unhealthy) & known.parts.keys()
    if not changed:
        return replace(known, conditions=conditions)
    parts = {**known.parts, **{device: _encode_device(known.resource, conditions, device) for device in changed}}
    return replace(known, conditions=conditions, parts=parts, frame=b"".join(parts.values()))


def published(
    known: DeviceList, resource: Resource, conditions: Conditions, now_s: float
) -> tuple[DeviceList, str | None]:
    """The list that follows: of a resource that the kubelet would not take, the old slots.

    And why it would not, empty if it would; None: the resource is the same one.
    """
    if resource is known.resource:
        return with_conditions(known, conditions), None
    try:
        return make_device_list(resource, conditions), ""
    except Oversize as error:
        # With what is known now: a fault must not hide behind a list that is too long.
        return encode_devices(with_slots_of(known.resource, resource, now_s), conditions), str(error)


def _encode_device(resource: Resource, conditions: Conditions, name: DeviceId) -> bytes:
    device = resource.inventory.by_id.get(name)
    numa = device.numa_nodes if device is not None and resource.numa_hints else ()
    unhealthy = dp.UNHEALTHY_SHORT if resource.compact else dp.UNHEALTHY
    usable = name not in conditions.unhealthy
    return _encode_slots(resource.slots_of[name], usable=usable, numa=numa, unhealthy=unhealthy)


def _encode_slots(slots: tuple[Slot, ...], *, usable: bool, numa: tuple[int, ...], unhealthy: str) -> bytes:
    """All slots of a device share health and topology, so that tail is encoded once and the id is put in front of it:
    60,000 slots take a fraction of what 60,000 message objects would.
    """
    out = _tail(unhealthy, numa)
    tail = _tail(dp.HEALTHY, numa) if usable else out
    parts: list[bytes] = []
    heads: dict[tuple[int, int], bytes] = {}
    for slot in slots:
        name = slot.id.encode()
        end = tail if slot.retired_s is None and not slot.withheld else out
        size = len(name), len(end)
        head = heads.get(size)
        if head is None:
            start = b"\n" + write_varint(len(name))  # "\n": field 1, length-delimited
            head = heads[size] = b"\n" + write_varint(len(start) + len(name) + len(end)) + start
        parts += (head, name, end)
    return b"".join(parts)


@lru_cache(maxsize=64)  # two for each NUMA node: a fault must be sent at once, and looks like the one before
def _tail(health: str, numa: tuple[int, ...]) -> bytes:
    topology = dp.TopologyInfo(nodes=tuple(dp.NUMANode(id=node) for node in numa)) if numa else None
    return encode(dp.Device(health=health, topology=topology))


def container_response(edits: Edits) -> dp.ContainerAllocateResponse:
    if not (edits.mounts or edits.nodes or edits.annotations or edits.cdi):  # nearly always
        return dp.ContainerAllocateResponse(envs=edits.env)
    return dp.ContainerAllocateResponse(
        envs=edits.env,
        mounts=tuple(
            dp.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in edits.mounts
        ),
        devices=tuple(
            dp.DeviceSpec(
                container_path=node.container_path or node.path, host_path=node.path, permissions=node.permissions
            )
            for node in edits.nodes
        ),
        annotations=edits.annotations,
        cdi_devices=tuple(dp.CDIDevice(name=name) for name in edits.cdi),
    )


def with_slots_of(before: Resource, now: Resource, now_s: float) -> Resource:
    """The slots of an earlier resource over the inventory of a later one. Those whose device left are retired."""
    slots = tuple(
        slot if slot.retired_s is not None or slot.device in now.inventory.by_id else Slot(slot.id, slot.device, now_s)
        for slot in before.slots
    )
    return replace(now, slots=slots)
