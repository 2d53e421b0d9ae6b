"""Retention: a slot that may be in use never vanishes from the list.

The kubelet dereferences nil if an id disappears between its choice and the answer to Allocate. So a slot that left
stays listed, unhealthy, until it has been gone for a while and is known to be free. Knows nothing of how that is
found out.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from fairlead.model.names import SlotId
from fairlead.model.resource import Resource, Slot

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
        return new.follow(previous)  # nothing left and nothing came: a list may be long, and its devices ail often
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
