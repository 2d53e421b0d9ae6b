"""Tightest: nodes in the order of the free units of their devices, for the question that is asked about all of them.

A node is in one bucket for each different amount that its devices have free. Small amounts have buckets of their own;
larger ones share them, so that there are few buckets whatever the unit is.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from fairlead.policy.packing.node import NodeRoom

_BITS = 9
EXACT = 2 << _BITS  # amounts below it have buckets of their own


class Tightest:
    def __init__(self) -> None:
        # Names in order, by twice the place of the amount; one more for nodes without a pod.
        self._buckets: dict[int, list[str]] = {}
        self._keys: list[int] = []  # of the buckets, in order
        self._names: dict[str, str] = {}  # one object for each name: a request has its own

    def change(self, name: str, before: NodeRoom | None, after: NodeRoom | None) -> None:
        """None: the node is not there."""
        gone, come = _keys(before), _keys(after)
        own = self._names.setdefault(name, name) if after is not None else self._names.pop(name, name)
        for key in gone - come:
            bucket = self._buckets[key]
            del bucket[bisect_left(bucket, own)]
            if not bucket:
                del self._buckets[key]
                del self._keys[bisect_left(self._keys, key)]
        for key in come - gone:
            if key not in self._buckets:
                self._buckets[key] = []
                insort(self._keys, key)
            insort(self._buckets[key], own)

    def best(
        self, units: int, names: AbstractSet[str], count: int, nodes: Mapping[str, NodeRoom]
    ) -> list[tuple[int, str]] | None:
        """The best of these nodes for one device of so many units, with their ranks, the best first.

        None: most nodes that fit are not among these, and it is cheaper to look at these one by one.
        """
        found: dict[str, int] = {}
        patience = 2 * len(names)
        at = bisect_left(self._keys, 2 * _place(units))
        while at < len(self._keys) and len(found) < count:
            if patience < 0:
                return None
            key = self._keys[at]
            if key < 2 * EXACT:
                bucket = self._buckets[key]
                patience -= self._take(bucket, key, names, count, found)
                at += 1
            else:
                # Amounts differ here: all nodes of the bucket are put in order, those without a pod among the others.
                both = [*self._buckets.get(key & ~1, ()), *self._buckets.get(key | 1, ())]
                ranks = [(_rank(nodes[name], units, key >> 1), name) for name in both if name in names]
                found |= {name: rank for rank, name in sorted(ranks) if rank}
                patience -= len(both)
                at = bisect_left(self._keys, (key | 1) + 1)
        return [(rank, name) for (name, rank), _ in zip(found.items(), range(count), strict=False)]

    @staticmethod
    def _take(bucket: list[str], rank: int, names: AbstractSet[str], count: int, found: dict[str, int]) -> int:
        """How many were looked at."""
        for looked, name in enumerate(bucket, 1):
            # A node that was found before has a device that is tighter.
            if name in names and name not in found:
                found[name] = rank
                if len(found) == count:
                    return looked
        return len(bucket)


def _keys(node: NodeRoom | None) -> set[int]:
    if node is None:
        return set()
    empty = node.is_empty
    return {2 * _place(free) + empty for free in set(node.ascending) if free > 0}


def _place(units: int) -> int:
    """Never less for more units."""
    if units < EXACT:
        return units
    shift = units.bit_length() - _BITS - 1
    return (shift << _BITS) + (units >> shift)


def _rank(node: NodeRoom, units: int, place: int) -> int:
    """0: what fits tightest is in another bucket."""
    at = bisect_left(node.ascending, units)
    free = node.ascending[at] if at < len(node.ascending) else 0
    return 2 * free + node.is_empty if free and _place(free) == place else 0
