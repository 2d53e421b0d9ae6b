"""Memory: how a device's memory becomes slots of a unit, how large the unit is, and how a slot's id says both.

An id is `<short>-<unit>m-<ordinal>`, such as 5c89abcd-16m-417: eight digits that name the device, the unit in MiB, and
which unit of the device it is. So an id means the same memory after a restart, under another unit, for ever. Where pods
hold ids of another plugin, a rule may ask for ids like those; they do not tell their unit. Knows nothing of pods.
"""

from __future__ import annotations

import re
from binascii import crc32
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.device import Device
from fairlead.model.errors import Oversize, UsageError
from fairlead.model.names import DeviceId, SlotId, parse_slot_id
from fairlead.model.resource import MemoryTerms, Slot
from fairlead.policy.offering.listbytes import run_bytes
from fairlead.policy.offering.stall import MAX_STALL_S, most_slots, name_time, stall_s

MIB = 1 << 20
KUBELET_MESSAGE_MAX_BYTES = 4 * MIB
# A unit is chosen for half a message: a card may be added, and when a unit changes, the old slots are listed beside
# the new ones for a while.
ROOM_BYTES = KUBELET_MESSAGE_MAX_BYTES // 2
# The kubelet writes each id of a container into the pod's status, in about 60 bytes of JSON; etcd takes 1.5 MiB of a
# pod at most, and a pod is more than one container's status.
PER_CONTAINER_MAX = 16_384

_UUID = re.compile(r"[A-Za-z]+-([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ID = re.compile(r"([0-9a-f]{8})-([1-9][0-9]{0,9})m-(0|[1-9][0-9]{0,9})")


AUTO = MemoryTerms()


class Part(Struct, frozen=True):
    """What a slot's id says."""

    short: str
    unit_bytes: int
    ordinal: int


def short_name(device: DeviceId) -> str:
    """Eight hexadecimal digits that follow from the id alone: the first of its UUID, which people know, or a sum."""
    found = _UUID.fullmatch(device)
    return found[1] if found else f"{crc32(device.encode(errors='surrogatepass')):08x}"


def read_id(slot: str) -> Part | None:
    """None if the id is not one of memory."""
    found = _ID.fullmatch(slot)
    return Part(found[1], int(found[2]) * MIB, int(found[3])) if found else None


def prefix_of(device: Device, unit_bytes: int, ids: str = "") -> str:
    if ids:
        return ids.replace("{id}", device.id).replace("{index}", device.index)
    return f"{short_name(device.id)}-{unit_bytes // MIB}m-"


def cut(device: Device, unit_bytes: int, ids: str = "") -> tuple[Slot, ...]:
    """The device's memory in units; what is left over is not offered. UsageError if there is not one whole unit."""
    count = device.memory_bytes // unit_bytes
    if not device.memory_bytes:
        raise UsageError("its backend does not say how much memory it has")
    if not count:
        raise UsageError(
            f"its {device.memory_bytes:,} bytes of memory are less than one unit of {name_unit(unit_bytes)}"
        )
    return _cut(device.id, prefix_of(device, unit_bytes, ids), count)


@lru_cache(maxsize=64)
def _cut(device: DeviceId, prefix: str, count: int) -> tuple[Slot, ...]:
    # Remembered: a fault on one device must not make 60,000 slots anew.
    parse_slot_id(f"{prefix}{count - 1}")  # the longest of them
    return tuple([Slot(SlotId(prefix + str(ordinal)), device) for ordinal in range(count)])


def list_bytes(devices: Iterable[Device], unit_bytes: int, ids: str = "", *, compact: bool | None = None) -> int:
    """The size of the list of these devices, at its worst.

    Under another plugin's ids nothing is said of NUMA nodes, as that plugin did: who chose the device did not ask. And
    what was a list of that plugin fits on a bad day as well: a short word tells it.
    """
    short = bool(ids) if compact is None else compact
    return sum(
        run_bytes(
            d, len(prefix_of(d, unit_bytes, ids)), d.memory_bytes // unit_bytes, numa_hints=not ids, compact=short
        )
        for d in devices
    )


def is_tight(devices: Sequence[Device], share: MemoryTerms, unit_bytes: int) -> bool:
    """Whether the list fits with short words only."""
    return bool(share.ids) and list_bytes(devices, unit_bytes, share.ids, compact=False) > KUBELET_MESSAGE_MAX_BYTES


def most_slots_of(share: MemoryTerms, unit_bytes: int) -> int | None:
    """How many slots a unit that may grow can have, for the kubelet's sake. None: any number.

    Under another plugin's ids pods are written for its unit: for that one the time is a warning, unless it is given.
    Pods must be written anew for any other unit, so any other is one that the kubelet can bear.
    """
    if share.max_stall_s is None:
        return None if share.ids and unit_bytes == share.unit_bytes else most_slots(MAX_STALL_S)
    return most_slots(share.max_stall_s) if share.max_stall_s else None


def count_slots(devices: Iterable[Device], unit_bytes: int) -> int:
    return sum(device.memory_bytes // unit_bytes for device in devices)


def choose_unit(devices: Sequence[Device], share: MemoryTerms = AUTO, room_bytes: int = ROOM_BYTES) -> int:
    """The least unit, doubled until the list fits, the kubelet can bear it, and one container may have any device."""
    largest = max((device.memory_bytes for device in devices), default=0)
    unit_bytes = share.unit_bytes
    while unit_bytes < largest:
        # Under another plugin's ids, pods are written for its unit: it grows only where nothing would work at all.
        whole = bool(share.ids) or largest // unit_bytes <= PER_CONTAINER_MAX
        most = most_slots_of(share, unit_bytes)
        borne = most is None or count_slots(devices, unit_bytes) <= most
        if whole and borne and list_bytes(devices, unit_bytes, share.ids) <= room_bytes:
            break
        unit_bytes *= 2
    return unit_bytes


def settle_unit(devices: Sequence[Device], share: MemoryTerms, keep_bytes: int | None = None) -> int:
    """The unit to cut with. One that is in use is kept while its list fits at all. Oversize if none may be taken."""
    limit = KUBELET_MESSAGE_MAX_BYTES
    if share.grow:
        kept = keep_bytes is not None and keep_bytes % share.unit_bytes == 0
        if keep_bytes and kept and list_bytes(devices, keep_bytes, share.ids) <= limit:
            return keep_bytes
        # What another plugin has listed so far, and the kubelet took, goes on.
        return choose_unit(devices, share, limit if share.ids else ROOM_BYTES)
    size = list_bytes(devices, share.unit_bytes, share.ids)
    if size > limit:
        slots = count_slots(devices, share.unit_bytes)
        enough = name_unit(choose_unit(devices, MemoryTerms(ids=share.ids, max_stall_s=0), limit))
        raise Oversize(
            f"{slots:,} slots of {name_unit(share.unit_bytes)} make a list of {size:,} bytes, over the kubelet's "
            f"{limit:,}. Set memory.unit to {enough} or more, or to auto"
        )
    return share.unit_bytes


def explain_unit(devices: Sequence[Device], share: MemoryTerms, unit_bytes: int) -> str:
    """Why the unit is another than the one that pods are written for, and what they get. Empty if it is that one."""
    if not share.ids or unit_bytes == share.unit_bytes:
        return ""
    asked, taken = name_unit(share.unit_bytes), name_unit(unit_bytes)
    slots = count_slots(devices, share.unit_bytes)
    size = list_bytes(devices, share.unit_bytes, share.ids)
    if size > KUBELET_MESSAGE_MAX_BYTES:
        limit = f"{KUBELET_MESSAGE_MAX_BYTES:,}"
        why = f"{slots:,} slots of {asked} make a list of {size:,} bytes, over the kubelet's {limit}"
        least = choose_unit(devices, replace(share, max_stall_s=0), KUBELET_MESSAGE_MAX_BYTES)
        if least < unit_bytes:
            many = count_slots(devices, least)
            why += f", and {many:,} of {name_unit(least)} would keep it busy for {name_time(stall_s(many, many))}"
    elif (most := most_slots_of(share, share.unit_bytes)) is not None and slots > most:
        busy = name_time(stall_s(slots, slots))
        why = f"{slots:,} slots of {asked} would keep the kubelet busy for {busy}, over memory.maxStall"
    else:
        why = "it was chosen for more devices, and stays while the daemon runs"
    return f"a unit is {taken}, not {asked}: {why}. An amount of 1 means {taken} here"


def unit_in_use(held: Iterable[SlotId]) -> int | None:
    """The unit that most of these slots are of: what pods hold must go on to mean what it meant."""
    counts: dict[int, int] = {}
    for slot in held:
        part = read_id(slot)
        if part is not None:
            counts[part.unit_bytes] = counts.get(part.unit_bytes, 0) + 1
    return max(counts, key=lambda unit_bytes: (counts[unit_bytes], unit_bytes), default=None)


def owner_of(slot: SlotId, by_short: Mapping[str, DeviceId]) -> DeviceId | None:
    """The device that a slot of memory is a part of, whatever its unit is."""
    part = read_id(slot)
    return by_short.get(part.short) if part is not None else None


def name_unit(unit_bytes: int) -> str:
    """As people write it: 16MiB, 1GiB."""
    for power, letter in ((40, "T"), (30, "G")):
        if unit_bytes % (1 << power) == 0:
            return f"{unit_bytes >> power}{letter}iB"
    return f"{unit_bytes // MIB}MiB" if unit_bytes % MIB == 0 else f"{unit_bytes} bytes"
