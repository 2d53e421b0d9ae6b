"""Sharing: how a device becomes slots, and how a slot's id names its device. Knows nothing of rules."""

from __future__ import annotations

import re
from collections.abc import Collection

from fairlead.model.device import Device
from fairlead.model.errors import UsageError
from fairlead.model.names import DeviceId, SlotId
from fairlead.model.resource import Slot

MARK = "::"
_SHARE = re.compile(r"(::|/[a-z]+)[0-9]+$")  # what follows a device's id in the id of a slot


def slots_for(device: Device, replicas: int = 1, mark: str = "") -> tuple[Slot, ...]:
    """One slot with the device's own id, or `<id>::0` to `<id>::n-1`; or those that the device names itself.

    With a mark of its own in place of `::`, a single slot has a number too.
    """
    if replicas < 1:
        raise UsageError(f"{device.id}: {replicas} replicas; a device has at least 1")
    if device.slots:
        if replicas > 1:
            raise UsageError(f"{device.id}: its backend names its {len(device.slots)} slots; leave out replicas")
        return tuple(Slot(SlotId(slot), device.id) for slot in device.slots)
    if replicas == 1 and not mark:
        return (Slot(SlotId(device.id), device.id),)
    return tuple(Slot(SlotId(f"{device.id}{mark or MARK}{ordinal}"), device.id) for ordinal in range(replicas))


def device_of(slot: SlotId, known: Collection[DeviceId] = ()) -> DeviceId:
    """The device by the slot's text and the ids of devices alone. A list, where there is one, knows better."""
    if (share := _SHARE.search(slot)) and slot[: share.start()] in known:
        return DeviceId(slot[: share.start()])
    device, mark, ordinal = slot.rpartition(MARK)
    return DeviceId(device if mark and device and ordinal.isascii() and ordinal.isdigit() else slot)
