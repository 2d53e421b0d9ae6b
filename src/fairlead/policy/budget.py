"""The message budget: how large a device list is on the wire, and whether the kubelet would take it.

The kubelet drops a list over its limit without telling anyone, and the resource shows 0. So the size is known before
anything is sent. Owns the arithmetic of ListAndWatchResponse; the bytes themselves are the wire's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

from fairlead.model.device import Device
from fairlead.model.errors import Oversize
from fairlead.model.resource import Resource, Slot

KUBELET_MESSAGE_MAX_BYTES = 4 * 1024 * 1024

_HEALTHY_BYTES = 2 + len("Healthy")  # a tag, a length, the text
_UNHEALTHY_BYTES = 2 + len("Unhealthy")


def list_bytes(resource: Resource) -> int:
    """The exact size of the list as it stands: id, health, and NUMA nodes where the device names some."""
    sick = {device for device in resource.slots_of if not resource.inventory.condition(device).health.usable}
    return sum(
        _sizes(
            resource,
            lambda slot: (
                _UNHEALTHY_BYTES
                if slot.retired_s is not None or slot.withheld or slot.device in sick
                else _HEALTHY_BYTES
            ),
        )
    )


def worst_bytes(resource: Resource) -> int:
    """The size when every slot is unhealthy: the longer word. A list that fits must still fit on that day."""
    return sum(_worst_sizes(resource))


def check(resource: Resource, limit_bytes: int = KUBELET_MESSAGE_MAX_BYTES) -> None:
    """Raises Oversize, with what would fit, if the list could grow over the limit."""
    sizes = list(_worst_sizes(resource))
    total = sum(sizes)
    if total <= limit_bytes:
        return
    each = -(-total // len(sizes))
    raise Oversize(
        f"{resource.name}: {len(sizes)} slots x ~{each} bytes = {total:,} bytes, over the kubelet's {limit_bytes:,}; "
        f"at most {limit_bytes * len(sizes) // total} slots of this size fit: {_advice(resource, sizes, limit_bytes)}"
    )


def _advice(resource: Resource, sizes: list[int], limit_bytes: int) -> str:
    """The largest number of replicas that fits. Retired slots stay whatever the replicas are."""
    fixed = 0
    groups: dict[str, list[int]] = {}
    for slot, size in zip(resource.slots, sizes, strict=True):
        if slot.retired_s is not None:
            fixed += size
        else:
            groups.setdefault(slot.device, []).append(size)
    most = max(map(len, groups.values()), default=0)
    sums = [[0, *accumulate(group)] for group in groups.values()]
    fits, over = 0, most + 1
    while over - fits > 1:
        middle = (fits + over) // 2
        if fixed + sum(prefix[min(middle, len(prefix) - 1)] for prefix in sums) <= limit_bytes:
            fits = middle
        else:
            over = middle
    if fits:
        return f"lower replicas from {most} to {fits}"
    return "even one slot per device is too many; divide the devices between several resource names"


def _worst_sizes(resource: Resource) -> Iterator[int]:
    return _sizes(resource, lambda _: _UNHEALTHY_BYTES)


def _sizes(resource: Resource, health_bytes: Callable[[Slot], int]) -> Iterator[int]:
    """The bytes each slot adds to the list."""
    topology = {device: _topology_bytes(resource.inventory.by_id.get(device)) for device in resource.slots_of}
    for slot in resource.slots:
        text = slot.id
        length = len(text) if text.isascii() else len(text.encode())
        inner = topology[slot.device] + health_bytes(slot)
        if length:
            inner += length + (2 if length < 128 else 1 + _varint_bytes(length))
        yield inner + (2 if inner < 128 else 1 + _varint_bytes(inner))


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
