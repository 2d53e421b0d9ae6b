"""Retention: a slot that may be in use never vanishes from the list, and its device is not given out another way.

The kubelet dereferences nil if an id disappears between its choice and the answer to Allocate. So a slot that left
stays listed, unhealthy, until it has been gone for a while and is known to be free; and a slot is withheld while a pod
holds its device through a slot of another kind. Knows nothing of how it is found out who holds what.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import takewhile

from msgspec.structs import replace

from fairlead.model.device import Device
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.policy.offering.memory import owner_of, short_name
from fairlead.policy.offering.sharing import device_of

HOLD_S = 60.0  # longer than an Allocate that is under way can reasonably take


def retain(
    previous: Resource | None,
    new: Resource,
    held: frozenset[SlotId] | None,
    *,
    now_s: float,
    hold_s: float = HOLD_S,
    is_free: Callable[[Slot], bool] = lambda _slot: False,
) -> Resource:
    """The new resource, with the slots that left it listed as retired after the offered ones.

    `held` names the slots that pods hold, of any resource. None means that it is not known who holds what: then only
    slots leave that `is_free` vouches for.
    """
    if previous is not None and previous.slots == new.slots and all(slot.retired_s is None for slot in new.slots):
        return new  # nothing left and nothing came
    offered = {slot.id for slot in new.slots if slot.retired_s is None}
    gone: dict[SlotId, Slot] = {}
    for slot in (*(previous.slots if previous else ()), *new.slots):
        if slot.id in offered:
            continue
        since_s = now_s if slot.retired_s is None else slot.retired_s
        known = gone.get(slot.id)
        if known is None or known.retired_s is None or since_s < known.retired_s:
            gone[slot.id] = Slot(slot.id, slot.device, since_s)
    kept = [
        slot
        for _, slot in sorted(gone.items())
        if now_s - (slot.retired_s or 0.0) < hold_s or (not is_free(slot) if held is None else slot.id in held)
    ]
    slots = (*(slot for slot in new.slots if slot.retired_s is None), *kept)
    return new if slots == new.slots else replace(new, slots=slots)


def withhold_held(
    listed: Mapping[ResourceName, Resource],
    held: Mapping[ResourceName, frozenset[SlotId]],
    devices: Iterable[Device],
    known_s: float = math.inf,
) -> tuple[dict[ResourceName, Resource], float]:
    """A device that a pod holds as it was offered before is not given to another pod as it is offered now.

    Rules, or the hardware, may have moved it to another resource, or cut it into more or fewer slots. `held` is as of
    `known_s`: a slot that left later may be held. The second answer is when the last such slot left; 0: there is none.
    """
    unsure: dict[DeviceId, float] = {}
    for resource in listed.values():
        for retired in takewhile(lambda slot: slot.retired_s is not None, reversed(resource.slots)):  # they come last
            if (retired.retired_s or 0.0) > known_s:
                unsure[retired.device] = retired.retired_s or 0.0
    busy = set(unsure)
    known = {device.id for device in devices}
    shorts: dict[str, DeviceId] = {}
    for name, resource in listed.items():
        for slot in held.get(name, frozenset()):
            place = resource.order.get(slot)
            if place is None:
                shorts = shorts or {short_name(device): device for device in known}
                busy.add(owner_of(slot, shorts) or device_of(slot, known))
            elif resource.slots[place].retired_s is not None:
                busy.add(resource.slots[place].device)  # ids of another plugin do not name it
    made = {name: withhold(resource, busy) if busy else resource for name, resource in listed.items()}
    return made, max(unsure.values(), default=0.0)


def withhold(resource: Resource, devices: Container[DeviceId]) -> Resource:
    """Keeps the offered slots of these devices from containers."""
    slots = tuple(
        replace(slot, withheld=True) if slot.device in devices and slot.retired_s is None else slot
        for slot in resource.slots
    )
    return replace(resource, slots=slots)


def one_form_at_a_time(
    listed: Mapping[ResourceName, Resource], taken: Mapping[ResourceName, AbstractSet[SlotId]] | None
) -> tuple[dict[ResourceName, Resource], bool]:
    """Withholds a device that two resources offer from the one that did not give it away; and whether there are such.

    `taken` None: it is not known who holds what. Then neither of them gives it away.
    """
    forms: dict[DeviceId, set[ResourceName]] = {}
    takers: dict[DeviceId, set[ResourceName]] = {}
    for name, resource in listed.items():
        mine = taken.get(name, frozenset()) if taken is not None else frozenset()
        for slot in resource.slots:
            if slot.retired_s is None:
                forms.setdefault(slot.device, set()).add(name)
            if slot.id in mine:
                takers.setdefault(slot.device, set()).add(name)
    twofold = {device for device, names in forms.items() if len(names) > 1}
    closed = {
        name: {device for device in twofold if taken is None or takers.get(device, set()) - {name}} for name in listed
    }
    return {name: withhold(resource, closed[name]) for name, resource in listed.items()}, bool(twofold)
