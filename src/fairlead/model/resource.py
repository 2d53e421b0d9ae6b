"""Resources and slots: what the kubelet counts. Health, NUMA and edits are looked up through slot -> device."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from fairlead.model.assign import Assign
from fairlead.model.device import Device
from fairlead.model.edits import NO_EDITS, Edits
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import EMPTY, Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId


class Strategy(StrEnum):
    """How a request that leaves a choice is placed."""

    ALIGNED = "aligned"  # best links inside the grant, fewest links broken for the next one
    PACK = "pack"  # fill what is already in use
    SPREAD = "spread"  # use what is least in use


class Slot(Struct, frozen=True, gc=False):
    """One thing the kubelet may hand out: a device, or a share of it."""

    id: SlotId
    device: DeviceId
    retired_s: float | None = None  # set: no longer offered, listed until it is known to be free
    withheld: bool = False  # its device is still held through a slot of another kind


class Resource(Struct, frozen=True, dict=True, weakref=True):
    """A named set of slots over one inventory."""

    name: ResourceName
    slots: tuple[Slot, ...]
    inventory: Inventory = EMPTY
    strategy: Strategy = Strategy.ALIGNED
    extra: Edits = NO_EDITS  # edits that the rule adds to every grant
    prepare: bool = False  # the kubelet must call before each container start
    per_container: int = 0  # how many slots one container may have; 0: any number
    unit_bytes: int = 0  # of the device's memory that a slot stands for; 0: it stands for no memory
    wish_bytes: int = 0  # the unit that it would be if pods did not hold units; 0: the same
    note: str = ""  # why that is another unit than the one asked for
    straddle: bool = False  # whether units of one container may lie on several devices
    hints: bool = True  # whether the kubelet is told the NUMA nodes of devices
    terse: bool = False  # whether a slot that is not usable must take no more room in the list than one that is
    assign: Assign | None = None  # set: a scheduler has chosen the devices, and the pods say which

    def follow(self, before: Resource | None) -> Resource:
        """This resource, with what an earlier one has worked out of the same slots: 60,000 are not sorted twice."""
        if before is not None and before is not self and before.slots == self.slots:
            views = self.__dict__
            views.update((name, before.__dict__[name]) for name in _VIEWS if name in before.__dict__)
        return self

    @cached_property
    def by_id(self) -> Mapping[SlotId, Slot]:
        return {slot.id: slot for slot in self.slots}

    @cached_property
    def order(self) -> Mapping[SlotId, int]:
        return {slot.id: place for place, slot in enumerate(self.slots)}

    def device(self, slot: Slot) -> Device | None:
        """None for a retired slot whose device is gone."""
        return self.inventory.by_id.get(slot.device)

    def condition(self, slot: Slot) -> Condition:
        if slot.retired_s is not None:
            return Condition(Health.UNHEALTHY, WITHDRAWN, slot.retired_s)
        if slot.withheld:
            return Condition(Health.UNHEALTHY, HELD_OTHERWISE)
        return self.inventory.condition(slot.device)

    def usable(self, slot: Slot) -> bool:
        return self.condition(slot).health.usable

    @cached_property
    def slots_of(self) -> Mapping[DeviceId, tuple[Slot, ...]]:
        groups: dict[DeviceId, list[Slot]] = {}
        for slot in self.slots:
            groups.setdefault(slot.device, []).append(slot)
        return {device: tuple(group) for device, group in groups.items()}


_VIEWS = ("by_id", "order", "slots_of")  # follow from the slots alone
HELD_OTHERWISE = Cause("held-otherwise", CauseKind.PERMANENT, "a pod still holds the device as it was offered before")
WITHDRAWN = Cause("withdrawn", CauseKind.PERMANENT, "no longer offered; listed until no pod holds it")
