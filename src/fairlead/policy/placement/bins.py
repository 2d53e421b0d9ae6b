"""Bin packing: how many slots to take from each bin. A bin is a device with slots, or a set of devices.

Greedy and O(n log n) in the bins, apart from `spread_breaking_ties`. Knows nothing of what is in a bin. Bins are in
order; between equals the first one wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import compress


def pack(free: Sequence[int], touched: Sequence[int], need: int, idle: Sequence[bool] = ()) -> list[int]:
    """Opens the fewest idle bins; takes from the fewest bins in all; among those, from the fullest.

    Bins that the request is in already come first: they cost nothing more. Without `idle` no bin counts as such.
    """
    take = [0] * len(free)
    for number in compress(range(len(free)), touched):
        take[number] = min(free[number], need)
        need -= take[number]
    others = sorted((number for number, seen in enumerate(touched) if not seen), key=lambda number: -free[number])
    unused = [number for number in others if idle and idle[number]]
    used = [number for number in others if not idle or not idle[number]]
    room = sum(free[number] for number in used)
    need = _take_from_fewest(take, free, unused, need, until=room)
    _take_from_fewest(take, free, used, need, until=0)
    return take


def _take_from_fewest(take: list[int], free: Sequence[int], bins: Sequence[int], need: int, until: int) -> int:
    """Takes from the fewest of some bins, largest first, until no more than `until` is needed; the last is tightest.

    Returns what is still needed.
    """
    for position, largest in enumerate(bins):
        if need <= until:
            break
        if need <= free[largest]:
            tightest = min((other for other in bins[position:] if free[other] >= need), key=lambda n: (free[n], n))
            take[tightest] = need
            return 0
        take[largest] = free[largest]
        need -= free[largest]
    return need


def pack_into_one(
    free: Sequence[int], touched: Sequence[int], totals: Sequence[int], need: int, *, roomy: bool
) -> list[int]:
    """All from one bin, where one has so much: the tightest, or with `roomy` the one with the largest share free."""
    fit = [number for number, room in enumerate(free) if room >= need]
    if not roomy or not fit or any(touched):
        return pack(free, touched, need)
    take = [0] * len(free)
    take[max(fit, key=lambda number: (free[number] / totals[number], -number))] = need
    return take


def spread(free: Sequence[int], used: Sequence[int], need: int) -> list[int]:
    """One from each bin in turn: the least used first, then the one least taken from, then the first."""
    take = [0] * len(free)
    heap = [(used[number], 0, number) for number, room in enumerate(free) if room]
    heapify(heap)
    for _ in range(need):
        in_use, taken, number = heap[0]
        take[number] = taken + 1
        if taken + 1 < free[number]:
            heapreplace(heap, (in_use + 1, taken + 1, number))
        else:
            heappop(heap)
    return take


def spread_breaking_ties(
    free: Sequence[int], used: Sequence[int], need: int, choose: Callable[[list[int], list[int], int], Sequence[int]]
) -> list[int]:
    """As `spread`, but `choose(equals, taken, count)` decides between bins that are equally used."""
    take = [0] * len(free)
    while need:
        levels = [(used[n] + take[n], take[n]) if take[n] < room else None for n, room in enumerate(free)]
        least = min(level for level in levels if level is not None)
        equals = [number for number, level in enumerate(levels) if level == least]
        if len(equals) > need:
            taken = [number for number, count in enumerate(take) if count]
            equals = list(choose(equals, taken, need))
        for number in equals:
            take[number] += 1
        need -= len(equals)
    return take
