"""Packing: all nodes of a cluster for one resource, and which pod has booked what.

A pod has one booking. What its annotations say goes before what we chose for it; see `Origin`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import IntEnum
from heapq import nsmallest

from msgspec import Struct

from fairlead.policy.packing.node import Demand, DeviceRoom, NodeRoom, Preference, Share, make_room
from fairlead.policy.packing.tightest import Tightest

FEW = 8  # so many times more nodes than are asked for, and the index is worth a set of their names


class Origin(IntEnum):
    """Where a booking comes from. A larger one counts more."""

    TENTATIVE = 1  # its filter was answered with this node; another one may be taken
    NOMINATED = 2  # room that preemption makes for it
    BOUND = 3  # we have bound it, and the watch has not shown it yet
    SEEN = 4  # the pod says so itself


class Booking(Struct, frozen=True):
    uid: str
    node: str
    shares: tuple[Share, ...]
    origin: Origin
    name: str = ""  # namespace/name, for people
    priority: int = 0


class Candidate(Struct, frozen=True, order=True):
    """A node that fits, in the order of preference."""

    rank: int
    node: str


class Packing:
    """Not thread-safe; nothing here waits."""

    def __init__(self, preference: Preference = Preference.TIGHTEST) -> None:
        self.preference = preference
        self._nodes: dict[str, NodeRoom] = {}
        self._by_uid: dict[str, Booking] = {}
        self._by_node: dict[str, dict[str, Booking]] = {}
        # Of the nodes, for the one question that is asked about all of them.
        self._tightest = Tightest()
        self._empty: set[str] = set()
        self.promised = 0  # how many bookings are for pods that preemption makes room for

    # --- What is there ----------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, NodeRoom]:
        return self._nodes

    def booking(self, uid: str) -> Booking | None:
        return self._by_uid.get(uid)

    def on(self, node: str) -> Iterable[Booking]:
        return self._by_node.get(node, {}).values()

    # --- Changes ----------------------------------------------------------------------------------------------------

    def put_node(self, name: str, devices: Sequence[DeviceRoom], pods_max: int = 0) -> bool:
        """Whether it is another than before: pods that were refused may fit now."""
        known = self._nodes.get(name)
        if known is not None and known.devices == tuple(devices) and known.pods_max == pods_max:
            return False
        self._set(name, make_room(devices, (booking.shares for booking in self.on(name)), pods_max))
        return True

    def drop_node(self, name: str) -> None:
        """Its bookings stay: a node that comes back has its pods."""
        self._index(name, self._nodes.pop(name, None), None)
        self._empty.discard(name)

    def put(self, booking: Booking) -> bool:
        """Books it in place of what the pod had. False: what it has counts more."""
        known = self._by_uid.get(booking.uid)
        if known is not None:
            if known.origin > booking.origin:
                return False
            self._forget(known)
            if known.node == booking.node and known.shares == booking.shares:
                self._keep(booking)
                return True
            self._change(known, -1)
        self._keep(booking)
        self._change(booking, 1)
        return True

    def drop(self, uid: str, at_most: Origin = Origin.SEEN) -> Booking | None:
        """What was released; None if there is none, or if it counts more than `at_most`."""
        known = self._by_uid.get(uid)
        if known is None or known.origin > at_most:
            return None
        self._forget(known)
        self._change(known, -1)
        return known

    def _keep(self, booking: Booking) -> None:
        self._by_uid[booking.uid] = booking
        self._by_node.setdefault(booking.node, {})[booking.uid] = booking
        self.promised += booking.origin is Origin.NOMINATED

    def _forget(self, booking: Booking) -> None:
        del self._by_uid[booking.uid]
        del self._by_node[booking.node][booking.uid]
        if not self._by_node[booking.node]:
            del self._by_node[booking.node]
        self.promised -= booking.origin is Origin.NOMINATED

    def _change(self, booking: Booking, sign: int) -> None:
        node = self._nodes.get(booking.node)
        if node is not None:
            self._set(booking.node, node.book(booking.shares, sign))

    def _index(self, name: str, before: NodeRoom | None, after: NodeRoom | None) -> None:
        if self.preference is Preference.TIGHTEST:
            self._tightest.change(name, before, after)

    def _set(self, name: str, node: NodeRoom) -> None:
        self._index(name, self._nodes.get(name), node)
        self._nodes[name] = node
        (self._empty.add if node.is_empty else self._empty.discard)(name)

    # --- Questions --------------------------------------------------------------------------------------------------

    def without(self, uid: str, name: str) -> NodeRoom | None:
        """A node as it is without what this pod has booked there."""
        node, booking = self._nodes.get(name), self._by_uid.get(uid)
        if node is None or booking is None or booking.node != name:
            return node
        return node.book(booking.shares, -1)

    def best(self, demand: Demand, names: Collection[str], count: int, uid: str = "") -> list[Candidate]:
        """The nodes that fit, the best first, no more than so many. What the pod itself has booked is free for it."""
        own = self._by_uid.get(uid)
        node = self.without(uid, own.node) if own is not None and own.node in names else None
        found = None
        if self._is_common(demand) and count * FEW < len(names):
            # One more than is asked for: the node that the pod has booked is judged on its own.
            among = names if isinstance(names, AbstractSet) else frozenset(names)
            found = self._tightest.best(demand.units, among, count + 1, self._nodes)
        if found is None:
            found = self._rank_tightest(demand, names) if self._is_common(demand) else self._rank(demand, names)
        if own is not None and node is not None:
            found = [entry for entry in found if entry[1] != own.node]
            if (rank := self._rank_node(node, demand)) is not None:
                found.append((rank, own.node))
        return [Candidate(rank, name) for rank, name in nsmallest(count, found)]

    def _is_common(self, demand: Demand) -> bool:
        return self.preference is Preference.TIGHTEST and demand.devices == 1 and not demand.whole and demand.units > 0

    def _rank_tightest(self, demand: Demand, names: Iterable[str]) -> list[tuple[int, str]]:
        """What `_rank` says of one device, at a third of the price."""
        nodes, empty, units = self._nodes, self._empty, demand.units
        return [
            (2 * row[bisect_left(row, units)] + (name in empty), name)
            for name in names
            if (node := nodes.get(name)) is not None and (row := node.ascending) and row[-1] >= units
        ]

    def _rank(self, demand: Demand, names: Iterable[str]) -> list[tuple[int, str]]:
        ranks = ((self._rank_node(self._nodes[name], demand), name) for name in names if name in self._nodes)
        return [(rank, name) for rank, name in ranks if rank is not None]

    def _rank_node(self, node: NodeRoom, demand: Demand) -> int | None:
        """A smaller one is better. Of two that fit as well, the one in use goes first, or the empty one."""
        left = node.left_over(demand)
        if left is None:
            return None
        if self.preference is Preference.EMPTIEST:
            return -2 * node.largest + (not node.is_empty)
        return 2 * (left + demand.total) + node.is_empty if not demand.whole else 2 * left + node.is_empty
