"""Grants: the slots of one container, resolved and admitted, or refused with the reason. Pure."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fairlead.model.edits import Grant
from fairlead.model.errors import BadAsk, Elsewhere, Straddles, UnfitSlots, UnknownSlots
from fairlead.model.health import Condition
from fairlead.model.inventory import Conditions
from fairlead.model.names import DeviceId
from fairlead.model.resource import Resource, Slot


def check_ids(resource: Resource, ids: Sequence[str]) -> list[Slot]:
    """The slots of one container, each known and named once, and not more than it may have."""
    if not ids:
        raise BadAsk(f"{resource.name}: the request names no device")
    slots = _slots(resource, ids)
    if any(map(operator.is_, slots, slots[1:])):
        raise BadAsk(f"{resource.name}: the request names a device twice")
    if 0 < resource.terms.per_container < len(ids):
        most = resource.terms.per_container
        reason = "the pod's status holds every id, and must not outgrow it. Use a larger memory.unit"
        why = reason if resource.unit_bytes else "more would give no more"
        raise BadAsk(f"{resource.name}: one container may have {most} of it, not {len(ids)}: {why}")
    return slots


def check_ask(resource: Resource, available: Sequence[str], must: Sequence[str], size: int) -> None:
    """A question that makes no sense, or names what is not known, is refused before anything is waited for."""
    known: Mapping[Any, int] = resource.order
    unknown = [slot for slot in must if slot not in known]
    if unknown:
        raise UnknownSlots(resource.name, unknown)
    if not 0 < size <= len(available) or len(must) > size:
        raise BadAsk(f"{resource.name}: {size} of {len(available)} devices, {len(must)} of them given, make no choice")


def grant_on(
    resource: Resource,
    conditions: Conditions,
    ids: Sequence[str],
    shares: Mapping[DeviceId, int],
    variables: Mapping[str, str],
    *,
    strict: bool,
) -> Grant:
    """The grant of slots that stand for devices chosen elsewhere, so many units of each.

    Only with `strict` must the slots be of these.
    """
    slots = check_ids(resource, ids)
    _check_fit(resource, conditions, slots)
    by_id, unhealthy = resource.inventory.by_id, conditions.unhealthy
    unfit = [(d, _why(conditions.of(d))) for d in shares if d in unhealthy or d not in by_id]
    if unfit:
        raise UnfitSlots(resource.name, unfit)
    lie_on = {slot.device for slot in slots}
    if strict and lie_on != set(shares):
        raise Elsewhere(resource.name, sorted(lie_on), list(shares))
    units = tuple(shares.values()) if resource.unit_bytes else ()
    found = tuple(by_id[device] for device in shares)
    return Grant(resource.name, tuple([slot.id for slot in slots]), found, resource.unit_bytes, units, variables)


def make_grant(resource: Resource, conditions: Conditions, ids: Sequence[str]) -> Grant:
    """Resolves and admits the ids of one container, or says which of them it cannot have, and why."""
    slots = check_ids(resource, ids)
    _check_fit(resource, conditions, slots)
    grant = _grant(resource, slots)
    if straddles(resource, [device.id for device in grant.devices]):
        raise Straddles(resource.name, zip((device.id for device in grant.devices), grant.units, strict=True))
    return grant


def straddles(resource: Resource, devices: Collection[DeviceId]) -> bool:
    """Whether these are more devices than the memory of one container may lie on."""
    memory = resource.terms.memory
    return len(devices) > 1 and resource.unit_bytes > 0 and not (memory is not None and memory.straddle)


def held_grant(resource: Resource, ids: Sequence[str]) -> Grant:
    """The grant of a container that has these slots already. It restarts on them, so health is not asked."""
    return _grant(resource, _slots(resource, ids))


def _check_fit(resource: Resource, conditions: Conditions, slots: Sequence[Slot]) -> None:
    unhealthy = conditions.unhealthy  # `usable`, written out: a container may have thousands of slots
    unfit = [
        (slot.id, _why(slot.condition(conditions)))
        for slot in slots
        if slot.retired_s is not None or slot.withheld or slot.device in unhealthy
    ]
    if unfit:
        raise UnfitSlots(resource.name, unfit)


def _slots(resource: Resource, ids: Sequence[str]) -> list[Slot]:
    """In our order: the kubelet sends ids at random; people and programs get them sorted."""
    order: Mapping[Any, int] = resource.order
    try:
        places = [order[slot] for slot in ids]
    except KeyError:
        raise UnknownSlots(resource.name, [slot for slot in ids if slot not in order]) from None
    places.sort()
    known = resource.slots
    return [known[place] for place in places]


def _grant(resource: Resource, slots: Sequence[Slot]) -> Grant:
    devices = resource.inventory.by_id
    ids = tuple([slot.id for slot in slots])
    owners = [slot.device for slot in slots]  # what follows is in their order
    if not resource.unit_bytes:
        return Grant(
            resource.name, ids, tuple([devices[device] for device in dict.fromkeys(owners) if device in devices])
        )
    counts = Counter(owners)
    found = tuple(devices[device] for device in counts if device in devices)
    return Grant(resource.name, ids, found, resource.unit_bytes, tuple(counts[device.id] for device in found))


def _why(condition: Condition) -> str:
    return f"{condition.health}: {condition.cause}" if condition.cause else str(condition.health)
