"""The order of all nodes by free units, against the same question asked of every node."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.packing.node import Demand, DeviceRoom, NodeRoom, Share, make_room
from fairlead.policy.packing.packing import FEW, Booking, Origin, Packing
from fairlead.policy.packing.tightest import EXACT, Tightest

NAMES = [f"n{number}" for number in range(8)]
# Amounts with buckets of their own, those that share one, and the border between them.
UNITS = st.one_of(st.integers(1, 6), st.integers(EXACT - 2, EXACT + 6), st.integers(3 * EXACT, 3 * EXACT + 12))
changes = st.tuples(
    st.sampled_from(NAMES), st.one_of(st.none(), st.lists(st.tuples(UNITS, st.integers(0, 3)), max_size=3))
)


def room_of(rows: list[tuple[int, int]]) -> NodeRoom:
    devices = [DeviceRoom(str(place), "", units) for place, (units, _) in enumerate(rows)]
    return make_room(devices, [[Share(place, used)] for place, (_, used) in enumerate(rows) if used])


def plainly(nodes: dict[str, NodeRoom], units: int, names: set[str]) -> list[tuple[int, str]]:
    ranked = []
    for name, node in nodes.items():
        at = bisect_left(node.ascending, units)
        if name in names and at < len(node.ascending):
            ranked.append((2 * node.ascending[at] + node.is_empty, name))
    return sorted(ranked)


@given(st.lists(changes, max_size=25), UNITS, st.sets(st.sampled_from(NAMES), min_size=1), st.integers(1, 9))
def test_the_best_are_those_of_a_look_at_every_node_after_any_changes(
    happened: list[tuple[str, list[tuple[int, int]] | None]], units: int, names: set[str], count: int
):
    index, nodes = Tightest(), dict[str, NodeRoom]()
    for name, rows in happened:
        after = room_of(rows) if rows is not None else None
        index.change(name, nodes.get(name), after)
        if after is not None:
            nodes[name] = after
        else:
            nodes.pop(name, None)
    best = index.best(units, names, count, nodes)
    assert best is None or best == plainly(nodes, units, names)[:count]
    assert index.best(units, set(NAMES), count, nodes) == plainly(nodes, units, set(NAMES))[:count]


def test_a_node_counts_with_the_amount_that_fits_and_not_with_a_smaller_one_beside_it():
    large = 3 * EXACT  # four amounts to a bucket from here on
    nodes = {"a": room_of([(large, 0), (large + 9, 0)]), "b": room_of([(large + 5, 0)])}
    index = Tightest()
    for name, node in nodes.items():
        index.change(name, None, node)
    assert [name for _, name in index.best(large + 2, set(nodes), 2, nodes) or ()] == ["b", "a"]


def test_a_node_that_went_is_not_the_best_until_it_is_back():
    packing, names = Packing(), [f"n{number:02}" for number in range(2 * FEW)]
    for name in names:
        packing.put_node(name, (DeviceRoom("0", "", 4),))
    packing.drop_node("n00")
    assert [one.node for one in packing.best(Demand(3), names, 1)] == ["n01"]
    packing.put_node("n00", (DeviceRoom("0", "", 4),))
    assert [one.node for one in packing.best(Demand(3), names, 1)] == ["n00"]


def test_nodes_that_all_go_leave_nothing_behind():
    index, room = Tightest(), room_of([(4, 1), (EXACT, 0)])
    for name in NAMES:
        index.change(name, None, room)
    for name in NAMES:
        index.change(name, room, None)
    assert vars(index) == vars(Tightest())


def test_few_loose_nodes_among_many_tight_ones_are_found_by_a_look_at_each():
    packing, loose = Packing(), [f"z{number}" for number in range(2 * FEW)]
    for number in range(100):
        packing.put_node(f"n{number:02}", (DeviceRoom("0", "", 4),))
    for number, name in enumerate(loose):
        packing.put_node(name, (DeviceRoom("0", "", 40 - number),))
    index = Tightest()
    for name, node in packing.nodes.items():
        index.change(name, None, node)
    assert index.best(3, frozenset(loose), 1, packing.nodes) is None
    assert [one.node for one in packing.best(Demand(3), loose, 1)] == loose[-1:]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40), st.integers(1, 20), st.booleans())
def test_the_index_and_the_look_at_each_node_give_the_same(taken: list[int], units: int, own: bool):
    packing, names = Packing(), [f"n{number:02}" for number in range(3 * FEW)]
    for name in names:
        packing.put_node(name, (DeviceRoom("0", "", 20), DeviceRoom("1", "", 20)))
    for number, amount in enumerate(taken):
        share = Share(number % 2, amount % 21)
        packing.put(Booking(f"p{number}", names[number * 7 % len(names)], (share,), Origin.SEEN))
    uid = "p0" if own else ""
    every = packing.best(Demand(units), names, len(names), uid)
    assert packing.best(Demand(units), names, 2, uid) == every[:2]
    assert packing.best(Demand(units), packing.nodes.keys(), 1, uid) == every[:1]
