"""Placement: which slots answer GetPreferredAllocation.

The answer holds `must_include`, lies within `available`, has exactly the size asked for, and does not depend on the
order of the request. Whatever is missing (links, NUMA nodes, the device itself) makes the choice plainer, never an
error: one dead device must not stop every pod of a node. Health is not consulted; the kubelet has filtered already.

Owns the strategies. Groups by links are found in `align` and `closest`, amounts per device in `bins`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress

from msgspec import Struct

from fairlead.model.errors import BadAsk, UnknownSlots
from fairlead.model.names import DeviceId, SlotId
from fairlead.model.resource import Resource, Strategy
from fairlead.policy.placement.bins import pack, pack_into_one, spread, spread_breaking_ties
from fairlead.policy.placement.facts import SlotTable, slot_table_of

LINKS_MAX = 256  # with more devices than this to choose from, links are left aside: the matrix alone takes too long

# The fallback taken, if any: short, stable, fit for a metric's label.
BY_BOUNDED_SEARCH = "bounded"  # too many devices for an exact search
BY_NUMA = "numa"  # no links known: grouped by NUMA node
BY_INDEX = "index"  # nothing known: lowest index


class Reason(Struct, frozen=True):
    """Why a device was taken or not. The score: links if aligned or closest, else free slots before."""

    device: DeviceId
    picked: int  # slots
    score: int
    why: str


class Choice(Struct, frozen=True):
    slots: tuple[SlotId, ...]  # in device order
    reasons: tuple[Reason, ...] = ()
    fallback: str = ""


class _Request(Struct, frozen=True):
    """A checked request, counted per device."""

    table: SlotTable
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
    table = slot_table_of(resource)
    try:
        offered, forced = table.mask_of(available), table.mask_of(must_include)
    except KeyError:
        raise UnknownSlots(resource.name, table.unknown([*available, *must_include])) from None
    _check(resource, table, offered, forced, size)
    if must_include:
        for number in compress(range(len(forced)), forced):
            offered[number] = 0
    ask = _Request(table, table.count(offered), table.count(forced), size)
    if ask.need == 0:
        take, fallback = [0] * len(ask.free), ""
    elif ask.need == sum(ask.free):
        take, fallback = ask.free, ""
    elif resource.unit_bytes:
        roomy = resource.terms.strategy is Strategy.SPREAD
        take, fallback = pack_into_one(ask.free, ask.forced, table.totals, ask.need, roomy=roomy), ""
    elif table.whole and max(map(int.__add__, ask.free, ask.forced)) == 1:
        take, fallback = _WHOLE[resource.terms.strategy](ask)
    else:
        take, fallback = _SHARED[resource.terms.strategy](ask)
    slots = _name(table, offered, forced, take)
    reasons = _explain(ask, take, resource.terms.strategy) if explain else ()
    return Choice(slots, reasons, fallback)


def _check(resource: Resource, table: SlotTable, offered: bytearray, forced: bytearray, size: int) -> None:
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


def _align_whole(ask: _Request, *, close: bool = False) -> tuple[list[int], str]:
    topology = ask.table.topology
    present = ask.present
    if len(present) > LINKS_MAX or not (close or topology.linked(present)):
        return _take_by_locality(ask, topology.nodes, packed=True), _nearness(ask)
    must = tuple(device for device in present if ask.forced[device])
    take = [0] * len(ask.free)
    chosen, exact = topology.choose(present, must, ask.size, close=close)
    for device in chosen:
        take[device] = 1 - ask.forced[device]
    return take, "" if exact else BY_BOUNDED_SEARCH


def _closest_whole(ask: _Request) -> tuple[list[int], str]:
    return _align_whole(ask, close=True)


def _pack_whole(ask: _Request) -> tuple[list[int], str]:
    """A device whose partitions are all free is kept so. A NUMA node is not: nearness is worth more there."""
    topology = ask.table.topology
    parents = [bool(device.parent) for device in topology.devices]
    return _take_by_locality(ask, topology.localities, packed=True, spared=parents), ""


def _spread_whole(ask: _Request) -> tuple[list[int], str]:
    return _take_by_locality(ask, ask.table.topology.localities, packed=False), ""


def _take_by_locality(
    ask: _Request, localities: Sequence[int], *, packed: bool, spared: Sequence[bool] = ()
) -> list[int]:
    """Counts whole devices per locality, then takes the lowest of each. One with a spared device is kept idle."""
    devices = range(len(ask.free))
    available = list(compress(devices, ask.free))
    free, touched = _count(localities, available), _count(localities, compress(devices, ask.forced))
    used = [total - left for total, left in zip(_count(localities, devices), free, strict=True)]
    keep = set(compress(localities, spared))
    idle = [not count and locality in keep for locality, count in enumerate(used)]
    counts = pack(free, touched, ask.need, idle) if packed else spread(free, used, ask.need)
    take = [0] * len(ask.free)
    for device in _lowest(available, localities, counts):
        take[device] = 1
    return take


def _count(bins: Sequence[int], devices: Iterable[int]) -> list[int]:
    """How many of the devices are in each bin."""
    counts = [0] * (max(bins) + 1)
    for device in devices:
        counts[bins[device]] += 1
    return counts


def _lowest(devices: Iterable[int], bins: Sequence[int], counts: list[int]) -> list[int]:
    """The first so many devices of each bin."""
    chosen = []
    for device in devices:
        if counts[bins[device]]:
            counts[bins[device]] -= 1
            chosen.append(device)
    return chosen


def _pack_shared(ask: _Request) -> tuple[list[int], str]:
    return pack(ask.free, ask.forced, ask.need, [not used for used in _used(ask)]), ""


def _spread_shared(ask: _Request) -> tuple[list[int], str]:
    return spread(ask.free, _used(ask), ask.need), ""


def _closest_shared(ask: _Request) -> tuple[list[int], str]:
    return _align_shared(ask, close=True)


def _align_shared(ask: _Request, *, close: bool = False) -> tuple[list[int], str]:
    """Spreads; between equally used devices, those that go best with what the request has already."""
    topology, present = ask.table.topology, ask.present
    held = {device for device, count in enumerate(ask.forced) if count}
    by_links = len(present) <= LINKS_MAX and (close or topology.linked(present))
    fallback = ""

    def choose(equals: list[int], taken: list[int], count: int) -> list[int]:
        nonlocal fallback
        must = sorted({*held, *taken} - set(equals))
        if not by_links:
            fallback = _nearness(ask)
            nodes = topology.nodes
            return _lowest(equals, nodes, pack(_count(nodes, equals), _count(nodes, must), count))
        devices = tuple(sorted([*equals, *must]))
        chosen, exact = topology.choose(devices, tuple(must), len(must) + count, close=close)
        fallback = "" if exact else BY_BOUNDED_SEARCH
        open_to = set(equals)
        return [device for device in chosen if device in open_to]

    return spread_breaking_ties(ask.free, _used(ask), ask.need, choose), fallback


def _nearness(ask: _Request) -> str:
    """What is left to go by without links."""
    return BY_NUMA if any(ask.table.topology.numa[device] for device in ask.present) else BY_INDEX


def _used(ask: _Request) -> list[int]:
    """Slots per device that are not free, those of this request included."""
    return [total - free for total, free in zip(ask.table.totals, ask.free, strict=True)]


_WHOLE: dict[Strategy, Callable[[_Request], tuple[list[int], str]]] = {
    Strategy.ALIGNED: _align_whole,
    Strategy.PACK: _pack_whole,
    Strategy.SPREAD: _spread_whole,
    Strategy.CLOSEST: _closest_whole,
}
_SHARED: dict[Strategy, Callable[[_Request], tuple[list[int], str]]] = {
    Strategy.ALIGNED: _align_shared,
    Strategy.PACK: _pack_shared,
    Strategy.SPREAD: _spread_shared,
    Strategy.CLOSEST: _closest_shared,
}


def _name(table: SlotTable, offered: bytearray, forced: bytearray, take: Sequence[int]) -> tuple[SlotId, ...]:
    """The lowest free slots of each device, and the forced ones."""
    chosen = forced
    for device, count in enumerate(take):
        start = table.starts[device]
        for _ in range(count):
            start = offered.index(1, start)
            chosen[start] = 1
            start += 1
    return tuple(compress(table.ids, chosen))


def _explain(ask: _Request, take: Sequence[int], strategy: Strategy) -> tuple[Reason, ...]:
    table, present = ask.table, ask.present
    chosen = [device for device in present if take[device] or ask.forced[device]]
    few = len(present) <= LINKS_MAX
    by_links = strategy in {Strategy.ALIGNED, Strategy.CLOSEST} and few and table.topology.linked(present)
    reasons = []
    for device in present:
        picked = take[device] + ask.forced[device]
        if by_links:
            score = sum(table.topology.weights([device, other])[0][1] for other in chosen if other != device)
            why = f"links to the chosen: {score}"
            why += "" if picked or strategy is Strategy.CLOSEST else "; kept for the next request"
        else:
            score = ask.free[device] + ask.forced[device]
            why = f"{score} of {table.totals[device]} slots available"
        if ask.forced[device]:
            why = f"must be included; {why}"
        reasons.append(Reason(table.device(device), picked, score, why))
    return tuple(reasons)
