"""Resources and slots: what the kubelet counts, and the terms on which it is given out.

Nothing here changes when a device fails: health is in `Conditions`, and is looked up through slot -> device.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from fairlead.model.assign import Assign
from fairlead.model.device import Device
from fairlead.model.edits import NO_EDITS, Edits
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import EMPTY, Conditions, Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId


class Strategy(StrEnum):
    """How a request that leaves a choice is placed."""

    ALIGNED = "aligned"  # best links inside the grant, fewest links broken for the next one
    PACK = "pack"  # fill what is already in use
    SPREAD = "spread"  # use what is least in use
    CLOSEST = "closest"  # least distance inside the grant, from parents with the fewest partitions left


class MemoryTerms(Struct, frozen=True):
    """How a rule shares the memory of devices."""

    unit_bytes: int = 1 << 20  # whole MiB
    grow: bool = True  # whether a unit whose list would not fit is doubled; else it is refused
    straddle: bool = False  # whether the memory of one container may lie on several devices
    required: bool = False  # whether there is nothing to run for where the unit is refused
    ids: str = ""  # how slots are named, up to the ordinal: {id} and {index} are the device's. Empty: our own ids
    # How long the kubelet may be busy with the list; 0: any time; None: as `most_slots_of` says.
    max_stall_s: float | None = None


class Cleanup(Struct, frozen=True):
    """What makes a device fit for the next container."""

    command: tuple[str, ...]
    deadline_s: float = 20.0


class Terms(Struct, frozen=True):
    """What a rule sets for its resource. All rules of one resource agree on it."""

    strategy: Strategy = Strategy.ALIGNED
    extra: Edits = NO_EDITS  # edits that the rule adds to every grant
    per_container: int = 0  # how many slots one container may have; 0: any number
    memory: MemoryTerms | None = None  # set: the slots are units of memory
    assign: Assign | None = None  # set: a scheduler has chosen the devices, and the pods say which
    uniform: str = ""  # an attribute that all devices have alike, or lack; else the resource is not offered
    cleanup: Cleanup | None = None  # set: a device is cleaned before another container gets it


class Slot(Struct, frozen=True, gc=False):
    """One thing the kubelet may hand out: a device, or a share of it."""

    id: SlotId
    device: DeviceId
    retired_s: float | None = None  # set: no longer offered, listed until it is known to be free
    withheld: bool = False  # its device is still held through a slot of another kind

    def condition(self, conditions: Conditions) -> Condition:
        """That of its device, unless the listing has a reason of its own to keep it from containers."""
        if self.retired_s is not None:
            return Condition(Health.UNHEALTHY, WITHDRAWN, self.retired_s)
        return Condition(Health.UNHEALTHY, HELD_OTHERWISE) if self.withheld else conditions.of(self.device)

    def usable(self, conditions: Conditions) -> bool:
        return self.retired_s is None and not self.withheld and self.device not in conditions.unhealthy


class Resource(Struct, frozen=True, dict=True, weakref=True):
    """A named set of slots over one inventory: built once for an inventory and rules, whatever the devices' health."""

    name: ResourceName
    slots: tuple[Slot, ...]
    inventory: Inventory = EMPTY
    terms: Terms = Terms()
    unit_bytes: int = 0  # of the device's memory that a slot stands for; 0: it stands for no memory
    wanted_unit_bytes: int = 0  # the unit that it would be if pods did not hold units; 0: the same
    note: str = ""  # why that is another unit than the one asked for
    compact: bool = False  # whether a slot that is not usable must take no more room in the list than one that is

    @property
    def numa_hints(self) -> bool:
        """Whether the kubelet is sent the NUMA nodes of devices. A plugin whose ids these are did not send them."""
        return self.terms.memory is None or not self.terms.memory.ids

    @cached_property
    def by_id(self) -> Mapping[SlotId, Slot]:
        return {slot.id: slot for slot in self.slots}

    @cached_property
    def order(self) -> Mapping[SlotId, int]:
        return {slot.id: place for place, slot in enumerate(self.slots)}

    def device(self, slot: Slot) -> Device | None:
        """None for a retired slot whose device is gone."""
        return self.inventory.by_id.get(slot.device)

    @cached_property
    def slots_of(self) -> Mapping[DeviceId, tuple[Slot, ...]]:
        groups: dict[DeviceId, list[Slot]] = {}
        for slot in self.slots:
            groups.setdefault(slot.device, []).append(slot)
        return {device: tuple(group) for device, group in groups.items()}


HELD_OTHERWISE = Cause("held-otherwise", CauseKind.PERMANENT, "a pod still holds the device as it was offered before")
WITHDRAWN = Cause("withdrawn", CauseKind.PERMANENT, "no longer offered; listed until no pod holds it")
