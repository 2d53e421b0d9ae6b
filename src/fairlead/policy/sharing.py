"""Sharing: how a device becomes slots, and how a slot's id names its device. Knows nothing of rules."""

from __future__ import annotations

from fairlead.model.device import Device
from fairlead.model.errors import UsageError
from fairlead.model.names import DeviceId, SlotId
from fairlead.model.resource import Slot

MARK = "::"


def slots_for(device: Device, replicas: int = 1) -> tuple[Slot, ...]:
    """One slot with the device's own id, or `<id>::0` to `<id>::n-1`."""
    if replicas < 1:
        raise UsageError(f"{device.id}: {replicas} replicas; a device has at least 1")
    if replicas == 1:
        return (Slot(SlotId(device.id), device.id),)
    return tuple(Slot(SlotId(f"{device.id}{MARK}{ordinal}"), device.id) for ordinal in range(replicas))


def device_of(slot: SlotId) -> DeviceId:
    """The device by the slot's text alone, for tools that have no list. A list, where there is one, knows better."""
    device, mark, ordinal = slot.rpartition(MARK)
    return DeviceId(device if mark and device and ordinal.isascii() and ordinal.isdigit() else slot)
