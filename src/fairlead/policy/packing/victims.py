"""Which pods must go so that another one fits on a node: those that really free the devices that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from fairlead.policy.packing.node import Demand, NodeRoom
from fairlead.policy.packing.packing import Booking


class _Cost(Struct, frozen=True, order=True):
    """The less important the most important victim, the better; then fewer; then less in all."""

    highest: int
    count: int
    units: int


def fits_without(node: NodeRoom, demand: Demand, gone: Iterable[Booking]) -> bool:
    for booking in gone:
        node = node.book(booking.shares, -1)
    return node.fits(demand)


def choose_victims(
    node: NodeRoom, demand: Demand, bookings: Sequence[Booking], priority: int, given: AbstractSet[str] = frozenset()
) -> tuple[Booking, ...] | None:
    """Those that must go for a pod of this priority; None: even all of them are not enough.

    `given`: uids of pods that go in any case. They are kept if they suffice.
    """
    going = [booking for booking in bookings if booking.uid in given]
    if fits_without(node, demand, going):
        return tuple(going)
    for booking in going:
        node = node.book(booking.shares, -1)
    lower = [booking for booking in bookings if booking.priority < priority and booking.uid not in given]
    by_device: dict[int, list[Booking]] = {}
    for booking in lower:
        for share in booking.shares:
            by_device.setdefault(share.device, []).append(booking)
    offers: list[tuple[_Cost, int, tuple[Booking, ...]]] = []
    for place, device in enumerate(node.devices):
        chosen = _free_device(node, demand, place, by_device.get(place, [])) if device.usable else None
        if chosen is not None:
            highest = max((booking.priority for booking in chosen), default=-(2**31))
            units = sum(share.units for booking in chosen for share in booking.shares)
            offers.append((_Cost(highest, len(chosen), units), place, chosen))
    if len(offers) < demand.devices:
        return None
    offers.sort(key=lambda offer: offer[:2])
    more = {booking.uid: booking for _, _, chosen in offers[: demand.devices] for booking in chosen}
    return (*going, *_needed(node, demand, list(more.values())))


def _free_device(node: NodeRoom, demand: Demand, place: int, bookings: Sequence[Booking]) -> tuple[Booking, ...] | None:
    """The fewest of the least important pods that must leave one device."""
    free = node.free[place]
    if demand.whole:
        held = sum(1 for booking in bookings for share in booking.shares if share.device == place)
        enough = node.pods[place] == held and node.devices[place].units >= max(demand.units, 1)
        return tuple(bookings) if enough else None
    crowded = node.pods_max and node.pods[place] >= node.pods_max
    if free >= demand.units and not crowded:
        return ()
    parts = {booking.uid: sum(s.units for s in booking.shares if s.device == place) for booking in bookings}
    for level in sorted({booking.priority for booking in bookings}):
        allowed = [booking for booking in bookings if booking.priority <= level]
        if free + sum(parts[booking.uid] for booking in allowed) < demand.units:
            continue
        # One that is large enough alone goes before several: the smallest of those.
        missing = demand.units - free
        alone = [booking for booking in allowed if parts[booking.uid] >= missing]
        if alone:
            return (min(alone, key=lambda one: (one.priority, parts[one.uid], one.uid)),)
        chosen: list[Booking] = []
        for booking in sorted(allowed, key=lambda one: (-parts[one.uid], one.priority, one.uid)):
            if missing <= 0:
                break
            chosen.append(booking)
            missing -= parts[booking.uid]
        return tuple(chosen)
    return None


def _needed(node: NodeRoom, demand: Demand, victims: list[Booking]) -> list[Booking]:
    """Without those that need not go: a pod on two devices may free both."""
    for booking in sorted(victims, key=lambda one: (-one.priority, one.uid)):
        rest = [other for other in victims if other.uid != booking.uid]
        if fits_without(node, demand, rest):
            victims = rest
    return victims
