"""The units of one resource: all its devices cut with one unit, and which unit that is while pods hold some.

A unit that pods may hold is fixed: an id of another plugin does not say its unit, so with another one the same id would
be other memory. Knows nothing of how it is found out who holds what.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.device import Device
from fairlead.model.errors import InvalidName, Oversize, UsageError
from fairlead.model.names import DeviceId, SlotId
from fairlead.model.resource import MemoryTerms, Resource, Slot
from fairlead.policy.offering.memory import (
    KUBELET_MESSAGE_MAX_BYTES,
    MIB,
    cut,
    explain_unit,
    list_bytes,
    name_unit,
    prefix_of,
    settle_unit,
    short_name,
)

UNITS = "units.fairlead/"  # and the daemon's name: an annotation of the node, `aliyun.com/gpu-mem=40960x16MiB`
_MARK = r"([0-9]{1,9})x([1-9][0-9]{0,9})MiB"


class Fixed(Struct, frozen=True):
    """A unit that must not change now."""

    unit_bytes: int  # 0: that of another plugin, or of a daemon that did not write it down: see `_unwritten`
    why: str  # who may hold some, and what to do about it
    first: frozenset[DeviceId] = frozenset()  # devices that must stay listed, if not all fit with this unit
    listed: frozenset[SlotId] = frozenset()  # what the kubelet was offered before, where the unit is not known


class Cut(Struct, frozen=True):
    slots: tuple[Slot, ...]
    unit_bytes: int
    wanted_unit_bytes: int = 0  # the unit that would be taken if this one were not fixed; 0: the same
    note: str = ""  # why the unit is not the one that pods are written for, or that was asked for
    problems: tuple[str, ...] = ()


class Uncut(Struct, frozen=True):
    why: str
    problems: tuple[str, ...] = ()


def cut_memory(
    devices: Sequence[Device],
    share: MemoryTerms,
    keep_bytes: int | None,
    fixed: Fixed | None,
    taken: dict[SlotId, DeviceId],
) -> Cut | Uncut:
    """Cuts the memory of these devices. `taken`: short names that devices have; new ones are added."""
    try:
        wanted_unit_bytes = settle_unit(devices, share, keep_bytes)
        if fixed is not None and not fixed.unit_bytes:
            fixed = replace(fixed, unit_bytes=_unwritten(devices, share, wanted_unit_bytes, fixed.listed))
    except Oversize as error:
        if fixed is None or not fixed.unit_bytes:
            return Uncut(str(error))
        wanted_unit_bytes = share.unit_bytes
    unit_bytes = wanted_unit_bytes if fixed is None else fixed.unit_bytes
    note = explain_unit(devices, share, unit_bytes)
    problems: list[str] = []
    if fixed is not None and unit_bytes != wanted_unit_bytes:
        now, then = name_unit(unit_bytes), name_unit(wanted_unit_bytes)
        note = f"a unit stays {now} and does not become {then}: {fixed.why}. An amount of 1 means {now} here"
    if fixed is not None:
        devices, problems = _that_fit(devices, share, fixed)
    slots: list[Slot] = []
    for device in devices:
        try:
            made = cut(device, unit_bytes, share.ids)
            # By the short name: the slots are many, and they differ in their number only.
            short = SlotId(short_name(device.id))
            if short in taken:
                raise InvalidName("short name", short, f"device {taken[short]!r} has it already; ids must be unique")
        except UsageError as error:
            problems.append(f"device {device.id!r} is left out: {error}")
            continue
        taken[short] = device.id
        slots.extend(made)
    wanted_unit_bytes = wanted_unit_bytes if wanted_unit_bytes != unit_bytes else 0
    return Cut(tuple(slots), unit_bytes, wanted_unit_bytes, note, tuple(problems))


def _unwritten(devices: Sequence[Device], share: MemoryTerms, wanted_unit_bytes: int, listed: frozenset[SlotId]) -> int:
    """The unit that pods may hold where no file says it.

    It is that of the plugin before. Where the kubelet takes no list in that plugin's unit, only a daemon of ours can
    have served: in the unit that it takes now, or, as earlier versions did, in the least that fits. That plugin may
    have served when there were fewer devices.
    """
    theirs, least = share.unit_bytes, settle_unit(devices, replace(share, max_stall_s=0))
    likely = (theirs, wanted_unit_bytes) if least == theirs else (wanted_unit_bytes, least, theirs)
    return next((unit for unit in likely if is_cut_with(unit, listed, devices, share.ids)), likely[0])


def _that_fit(devices: Sequence[Device], share: MemoryTerms, fixed: Fixed) -> tuple[list[Device], list[str]]:
    """The devices whose list fits with a unit that must stay, and what is said of the others."""
    kept: list[Device] = []
    problems: list[str] = []
    size = 0
    for device in sorted(devices, key=lambda one: one.id not in fixed.first):
        size += (more := list_bytes([device], fixed.unit_bytes, share.ids))
        if size <= KUBELET_MESSAGE_MAX_BYTES:
            kept.append(device)
            continue
        size -= more
        unit = name_unit(fixed.unit_bytes)
        problems.append(
            f"device {device.id!r} is left out: with it, the list in units of {unit} would be over the kubelet's "
            f"{KUBELET_MESSAGE_MAX_BYTES:,} bytes, and {fixed.why}"
        )
    known = {device.id for device in kept}
    return [device for device in devices if device.id in known], problems


def devices_of(held: Iterable[SlotId], devices: Iterable[Device], ids: str) -> frozenset[DeviceId]:
    """The devices that ids of another plugin name. Such an id ends with the number of the unit."""
    stems = {slot.rstrip("0123456789") for slot in held}
    return frozenset(device.id for device in devices if prefix_of(device, 0, ids) in stems)


def is_cut_with(unit_bytes: int, listed: Iterable[SlotId], devices: Iterable[Device], ids: str) -> bool:
    """Whether a list of another plugin's ids is one of these devices in this unit. Devices without any do not count."""
    counts = Counter(slot.rstrip("0123456789") for slot in listed)
    found = [(counts[prefix_of(device, 0, ids)], device.memory_bytes // unit_bytes) for device in devices]
    return any(count for count, _ in found) and all(count in {0, whole} for count, whole in found)


# --- The annotation of the node ---------------------------------------------------------------------------------------


def write_units(resources: Iterable[Resource]) -> str:
    """With their number, so that what an earlier daemon wrote is not taken for what the plugin after it offers."""
    return ",".join(f"{one.name}={len(one.slots)}x{one.unit_bytes // MIB}MiB" for one in resources if one.unit_bytes)


def read_unit(annotations: Mapping[str, str], resource: str, count: int) -> int | None:
    """MiB in a unit, if one of the annotations says it of just so many units."""
    for key, text in annotations.items():
        for entry in text.split(",") if key.startswith(UNITS) else ():
            name, _, mark = entry.partition("=")
            if name == resource and (found := re.fullmatch(_MARK, mark)) and int(found[1]) == count:
                return int(found[2])
    return None
