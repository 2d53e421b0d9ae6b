"""Sizes: how many bytes a device list takes on the wire. Owns the arithmetic of ListAndWatchResponse.

Knows nothing of limits, and makes no bytes itself: those are the wire's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairlead.model.device import Device
from fairlead.model.inventory import Conditions
from fairlead.model.resource import Resource, Slot

_HEALTHY_BYTES = 2 + len("Healthy")  # a tag, a length, the text
_UNHEALTHY_BYTES = 2 + len("Unhealthy")
_UNHEALTHY_SHORT_BYTES = 2 + len("Unwell")  # where the list would not fit otherwise


def list_bytes(resource: Resource, conditions: Conditions) -> int:
    """The exact size of the list as it stands: id, health, and NUMA nodes where the device names some."""
    unhealthy_bytes = _UNHEALTHY_SHORT_BYTES if resource.compact else _UNHEALTHY_BYTES
    return sum(
        _sizes(
            resource,
            lambda slot: _HEALTHY_BYTES if slot.usable(conditions) else unhealthy_bytes,
        )
    )


def worst_bytes(resource: Resource) -> int:
    """The size when every slot is unhealthy: the longer word. A list that fits must still fit on that day."""
    return sum(worst_sizes(resource))


def worst_sizes(resource: Resource) -> Iterator[int]:
    """The bytes that each slot takes on that day. A compact list is at its worst when all is well."""
    worst = _HEALTHY_BYTES if resource.compact else _UNHEALTHY_BYTES
    return _sizes(resource, lambda _: worst)


def run_bytes(device: Device, prefix_bytes: int, count: int, *, numa_hints: bool = True, compact: bool = False) -> int:
    """The worst size of `count` slots of one device, whose ids are a prefix and the numbers 0, 1, 2 and so on."""
    tail = (_topology_bytes(device) if numa_hints else 0) + (_HEALTHY_BYTES if compact else _UNHEALTHY_BYTES)
    total, first, digits = 0, 0, 1
    while first < count:
        beyond = min(count, 10**digits)
        total += (beyond - first) * _entry_bytes(prefix_bytes + digits, tail)
        first, digits = beyond, digits + 1
    return total


def _sizes(resource: Resource, health_bytes: Callable[[Slot], int]) -> Iterator[int]:
    """The bytes each slot adds to the list."""
    devices = resource.inventory.by_id if resource.numa_hints else {}
    topology = {device: _topology_bytes(devices.get(device)) for device in resource.slots_of}
    for slot in resource.slots:
        text = slot.id
        length = len(text) if text.isascii() else len(text.encode())
        yield _entry_bytes(length, topology[slot.device] + health_bytes(slot))


def _entry_bytes(id_bytes: int, tail_bytes: int) -> int:
    """One entry: its tag and length, the id with tag and length, and what comes after the id."""
    inner = tail_bytes
    if id_bytes:
        inner += id_bytes + (2 if id_bytes < 128 else 1 + _varint_bytes(id_bytes))
    return inner + (2 if inner < 128 else 1 + _varint_bytes(inner))


def _topology_bytes(device: Device | None) -> int:
    if device is None or not device.numa_nodes:
        return 0
    nodes = 0
    for node in device.numa_nodes:
        inner = 1 + _varint_bytes(node) if node else 0  # node 0 is the default value and takes no bytes
        nodes += 1 + _varint_bytes(inner) + inner
    return 1 + _varint_bytes(nodes) + nodes


def _varint_bytes(value: int) -> int:
    if value < 0:
        return 10  # a negative int64 travels as its 64-bit complement
    return max(1, -(-value.bit_length() // 7))
