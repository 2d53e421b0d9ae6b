"""Placement: which slots answer GetPreferredAllocation.

The answer holds `must_include`, lies within `available`, has exactly the size asked for, and does not depend on the
order of the request. Whatever is missing (links, NUMA nodes, the device itself) makes the choice plainer, never an
error: one dead device must not stop every pod of a node. Health is not consulted; the kubelet has filtered already.

Owns the strategies. How groups are found by links is alignment's; how bins are filled is filling's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from msgspec import Struct

from fairlead.model.errors import BadAsk, UnknownSlots
from fairlead.model.names import DeviceId, SlotId
from fairlead.model.resource import Resource, Strategy
from fairlead.policy.align import EXACT_MAX
from fairlead.policy.fill import hold, pack, spread, spread_choosing
from fairlead.policy.table import Table, table_of

LINKS_MAX = 256  # with more devices than this to choose from, links are left aside: the matrix alone takes too long

# The fallback taken, if any: short, stable, fit for a metric's label.
BY_BOUNDED_SEARCH = "bounded"  # too many devices for an exact search
BY_NUMA = "numa"  # no links known: grouped by NUMA node
BY_INDEX = "index"  # nothing known: lowest index


class Reason(Struct, frozen=True):
    """Why a device was taken or not. The score is in links for aligned placement, else in free slots before."""

    device: DeviceId
    picked: int  # slots
    score: int
    why: str


class Choice(Struct, frozen=True):
    slots: tuple[SlotId, ...]  # in device order
    reasons: tuple[Reason, ...] = ()
    fallback: str = ""


class _Ask(Struct, frozen=True):
    """A checked request, counted per device."""

    table: Table
    free: list[int]  # available and not forced
    forced: list[int]  # must be included
    size: int

    @property
    def need(self) -> int:
        return self.size - sum(self.forced)

    @property
    def present(self) -> tuple[int, ...]:
        """Devices with at least one available slot."""
        return tuple(n for n, (free, forced) in enumerate(zip(self.free, self.forced, strict=True)) if free or forced)


def place(
    resource: Resource,
    available: Sequence[SlotId],
    must_include: Sequence[SlotId],
    size: int,
    *,
    explain: bool = False,
) -> Choice:
    table = table_of(resource)
    try:
        offered, forced = table.mark(available), table.mark(must_include)
    except KeyError:
        raise UnknownSlots(resource.name, table.unknown([*available, *must_include])) from None
    _check(resource, table, offered, forced, size)
    if must_include:
        for number in compress(range(len(forced)), forced):
            offered[number] = 0
    ask = _Ask(table, table.count(offered), table.count(forced), size)
    if ask.need == 0:
        take, fallback = [0] * len(ask.free), ""
    elif ask.need == sum(ask.free):
        take, fallback = ask.free, ""
    elif resource.unit_bytes:
        roomy = resource.strategy is Strategy.SPREAD
        take, fallback = hold(ask.free, ask.forced, table.totals, ask.need, roomy=roomy), ""
    elif table.whole and max(map(int.__add__, ask.free, ask.forced)) == 1:
        take, fallback = _WHOLE[resource.strategy](ask)
    else:
        take, fallback = _SHARED[resource.strategy](ask)
    slots = _name(table, offered, forced, take)
    reasons = _explain(ask, take, resource.strategy) if explain else ()
    return Choice(slots, reasons, fallback)


def _check(resource: Resource, table: Table, offered: bytearray, forced: bytearray, size: int) -> None:
    count, required = offered.count(1), forced.count(1)
    if size < 1:
        raise BadAsk(f"{resource.name}: asked to place {size} devices; a request is for at least 1")
    if size > count:
        raise BadAsk(f"{resource.name}: asked to place {size} devices, but only {count} are available")
    if required > size:
        raise BadAsk(f"{resource.name}: {required} devices must be included in a request for {size}")
    for number in compress(range(len(forced)), forced) if required else ():
        if not offered[number]:
            raise BadAsk(f"{resource.name}: {table.ids[number]} must be included, but is not available")


def _align_whole(ask: _Ask) -> tuple[list[int], str]:
    fabric = ask.table.fabric
    present = ask.present
    if len(present) > LINKS_MAX or not fabric.linked(present):
        return _take_from_crowds(ask, fabric.nodes, packed=True), _nearness(ask)
    must = tuple(device for device in present if ask.forced[device])
    take = [0] * len(ask.free)
    for device in fabric.align(present, must, ask.size):
        take[device] = 1 - ask.forced[device]
    return take, BY_BOUNDED_SEARCH if len(present) > EXACT_MAX else ""


def _pack_whole(ask: _Ask) -> tuple[list[int], str]:
    """A device whose partitions are all free is kept so. A NUMA node is not: nearness is worth more there."""
    fabric = ask.table.fabric
    parents = [bool(device.parent) for device in fabric.devices]
    return _take_from_crowds(ask, fabric.crowds, packed=True, spared=parents), ""


def _spread_whole(ask: _Ask) -> tuple[list[int], str]:
    return _take_from_crowds(ask, ask.table.fabric.crowds, packed=False), ""


def _take_from_crowds(ask: _Ask, crowds: Sequence[int], *, packed: bool, spared: Sequence[bool] = ()) -> list[int]:
    """Counts whole devices per crowd, then takes the lowest of each. A crowd with a spared device is kept idle."""
    bins = max(crowds) + 1
    free, touched, used = [0] * bins, [0] * bins, [0] * bins
    for device, crowd in enumerate(crowds):
        free[crowd] += ask.free[device]
        touched[crowd] += ask.forced[device]
        used[crowd] += 1 - ask.free[device]
    keep = set(compress(crowds, spared))
    idle = [not count and crowd in keep for crowd, count in enumerate(used)]
    left = pack(free, touched, ask.need, idle) if packed else spread(free, used, ask.need)
    take = [0] * len(ask.free)
    for device, crowd in enumerate(crowds):
        if ask.free[device] and left[crowd]:
            take[device] = 1
            left[crowd] -= 1
    return take


def _pack_shared(ask: _Ask) -> tuple[list[int], str]:
    return pack(ask.free, ask.forced, ask.need, [not used for used in _used(ask)]), ""


def _spread_shared(ask: _Ask) -> tuple[list[int], str]:
    return spread(ask.free, _used(ask), ask.need), ""


def _align_shared(ask: _Ask) -> tuple[list[int], str]:
    """Spreads; between equally used devices, those that go best with what the request has already."""
    fabric, present = ask.table.fabric, ask.present
    held = {device for device, count in enumerate(ask.forced) if count}
    by_links = len(present) <= LINKS_MAX and fabric.linked(present)
    fallback = ""

    def choose(equals: list[int], taken: list[int], count: int) -> list[int]:
        nonlocal fallback
        must = sorted({*held, *taken} - set(equals))
        if not by_links:
            fallback = _nearness(ask)
            return _choose_by_nodes(fabric.nodes, equals, must, count)
        devices = tuple(sorted([*equals, *must]))
        fallback = BY_BOUNDED_SEARCH if len(devices) > EXACT_MAX else ""
        open_to = set(equals)
        return [device for device in fabric.align(devices, tuple(must), len(must) + count) if device in open_to]

    return spread_choosing(ask.free, _used(ask), ask.need, choose), fallback


def _choose_by_nodes(nodes: Sequence[int], equals: Sequence[int], must: Sequence[int], count: int) -> list[int]:
    bins = max(nodes) + 1
    free, touched = [0] * bins, [0] * bins
    for device in equals:
        free[nodes[device]] += 1
    for device in must:
        touched[nodes[device]] += 1
    left = pack(free, touched, count)
    chosen = []
    for device in equals:
        if left[nodes[device]]:
            left[nodes[device]] -= 1
            chosen.append(device)
    return chosen


def _nearness(ask: _Ask) -> str:
    """What is left to go by without links."""
    return BY_NUMA if any(ask.table.fabric.numa[device] for device in ask.present) else BY_INDEX


def _used(ask: _Ask) -> list[int]:
    """Slots per device that are not free, those of this request included."""
    return [total - free for total, free in zip(ask.table.totals, ask.free, strict=True)]


_WHOLE = {Strategy.ALIGNED: _align_whole, Strategy.PACK: _pack_whole, Strategy.SPREAD: _spread_whole}
_SHARED = {Strategy.ALIGNED: _align_shared, Strategy.PACK: _pack_shared, Strategy.SPREAD: _spread_shared}


def _name(table: Table, offered: bytearray, forced: bytearray, take: Sequence[int]) -> tuple[SlotId, ...]:
    """The lowest free slots of each device, and the forced ones."""
    chosen = forced
    for device, count in enumerate(take):
        start = table.starts[device]
        for _ in range(count):
            start = offered.index(1, start)
            chosen[start] = 1
            start += 1
    return tuple(compress(table.ids, chosen))


def _explain(ask: _Ask, take: Sequence[int], strategy: Strategy) -> tuple[Reason, ...]:
    table, present = ask.table, ask.present
    chosen = [device for device in present if take[device] or ask.forced[device]]
    by_links = strategy is Strategy.ALIGNED and len(present) <= LINKS_MAX and table.fabric.linked(present)
    reasons = []
    for device in present:
        picked = take[device] + ask.forced[device]
        if by_links:
            score = sum(table.fabric.weights([device, other])[0][1] for other in chosen if other != device)
            why = f"links to the chosen: {score}"
            why += "" if picked else "; kept for the next request"
        else:
            score = ask.free[device] + ask.forced[device]
            why = f"{score} of {table.totals[device]} slots available"
        if ask.forced[device]:
            why = f"must be included; {why}"
        reasons.append(Reason(table.device(device), picked, score, why))
    return tuple(reasons)
