"""Which devices of which node a pod gets, against the same questions asked of every possibility."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.packing.node import Demand, DeviceRoom, NodeRoom, Preference, Share, make_room
from fairlead.policy.packing.packing import Booking, Origin, Packing
from fairlead.policy.packing.victims import choose_victims, fits_without

UNITS = st.integers(0, 16)
demands = st.builds(Demand, st.integers(1, 16), st.integers(1, 3), st.booleans())
device_rows = st.lists(st.tuples(UNITS, st.booleans()), max_size=5).map(
    lambda rows: tuple(
        DeviceRoom(str(place), f"id-{place}", units, usable) for place, (units, usable) in enumerate(rows)
    )
)


@st.composite
def rooms(draw: st.DrawFn) -> NodeRoom:
    devices = draw(device_rows)
    share = st.builds(Share, st.integers(0, max(len(devices) - 1, 0)), st.integers(1, 16))
    booked = draw(st.lists(st.tuples(share), max_size=6)) if devices else []
    return make_room(devices, booked, draw(st.sampled_from([0, 0, 2])))


def takes(node: NodeRoom, place: int, demand: Demand) -> bool:
    """Whether one device can be one of those that the demand is for, said as plainly as possible."""
    device = node.devices[place]
    room = device.units - node.used[place] >= max(demand.units, 1)
    crowded = bool(node.pods_max) and node.pods[place] >= node.pods_max
    alone = not node.pods[place] and not node.used[place]
    return device.usable and room and not crowded and (alone or not demand.whole)


def possibilities(node: NodeRoom, demand: Demand) -> list[tuple[int, ...]]:
    places = [place for place in range(len(node.devices)) if takes(node, place, demand)]
    return list(combinations(places, demand.devices))


@given(rooms(), demands)
def test_a_node_fits_where_devices_can_be_chosen_and_nowhere_else(node: NodeRoom, demand: Demand):
    chosen = node.choose(demand)
    assert bool(chosen) == bool(possibilities(node, demand)) == node.fits(demand)
    assert (node.left_over(demand) is not None) == node.fits(demand)
    if chosen:
        assert chosen in possibilities(node, demand)


@given(rooms(), demands, st.sampled_from(Preference))
def test_the_tightest_devices_are_chosen_or_the_emptiest(node: NodeRoom, demand: Demand, preference: Preference):
    chosen = node.choose(demand, preference)
    if not chosen:
        return
    free = node.free
    best = min if preference is Preference.TIGHTEST else max
    assert sum(free[place] for place in chosen) == best(
        sum(free[place] for place in each) for each in possibilities(node, demand)
    )
    if preference is Preference.TIGHTEST:
        assert node.left_over(demand) == sum(free[place] for place in chosen) - demand.total


def test_of_equal_devices_the_first_is_chosen():
    devices = tuple(DeviceRoom(str(place), "", 8) for place in range(3))
    assert make_room(devices).choose(Demand(2)) == (0,)
    assert make_room(devices, [[Share(1, 3)]]).choose(Demand(2)) == (1,)
    assert make_room(devices, [[Share(1, 3)]]).choose(Demand(2), Preference.EMPTIEST) == (0,)


@given(rooms(), st.lists(st.builds(Share, st.integers(0, 4), st.integers(1, 16)), max_size=3))
def test_what_is_booked_and_released_leaves_the_node_as_it_was(node: NodeRoom, shares: list[Share]):
    assert node.book(shares).book(shares, -1) == node


def test_more_held_than_there_is_leaves_a_negative_rest_that_takes_nothing():
    node = make_room((DeviceRoom("0", "", 4),), [[Share(0, 9)]])
    assert node.free == (-5,)
    assert not node.fits(Demand(1))
    assert node.largest == -5


# --- All nodes --------------------------------------------------------------------------------------------------------

changes = st.one_of(
    st.tuples(st.just("node"), st.sampled_from("ab"), device_rows),
    st.tuples(st.just("gone"), st.sampled_from("ab"), st.none()),
    st.tuples(
        st.just("book"),
        st.sampled_from("ab"),
        st.tuples(st.sampled_from("pqr"), st.integers(0, 4), st.integers(1, 9), st.sampled_from(Origin)),
    ),
    st.tuples(st.just("drop"), st.sampled_from("ab"), st.tuples(st.sampled_from("pqr"), st.sampled_from(Origin))),
)


@given(st.lists(changes, max_size=30))
def test_what_is_used_is_what_is_booked_after_any_changes(happened: list[tuple[str, str, Any]]):
    packing = Packing()
    for kind, node, what in happened:
        if kind == "node":
            packing.put_node(node, what)
        elif kind == "gone":
            packing.drop_node(node)
        elif kind == "book":
            uid, place, units, origin = what
            packing.put(Booking(uid, node, (Share(place, units),), origin))
        else:
            uid, origin = what
            packing.drop(uid, origin)
    for name, room in packing.nodes.items():
        expected = make_room(room.devices, [booking.shares for booking in packing.on(name)])
        assert room == expected
    assert all(packing.booking(one.uid) == one for name in "ab" for one in packing.on(name))


def test_what_a_pod_says_counts_more_than_what_was_chosen_for_it():
    packing = Packing()
    packing.put_node("a", (DeviceRoom("0", "", 8), DeviceRoom("1", "", 8)))
    assert packing.put(Booking("p", "a", (Share(0, 4),), Origin.TENTATIVE))
    assert packing.put(Booking("p", "a", (Share(1, 4),), Origin.SEEN))
    assert not packing.put(Booking("p", "a", (Share(0, 4),), Origin.BOUND))
    assert packing.nodes["a"].used == (0, 4)
    assert packing.drop("p", Origin.BOUND) is None
    assert packing.drop("p") is not None
    assert packing.nodes["a"].used == (0, 0)


@given(st.lists(rooms(), min_size=1, max_size=6), demands, st.integers(1, 4))
def test_the_best_nodes_fit_and_leave_the_least(nodes: list[NodeRoom], demand: Demand, count: int):
    packing = Packing()
    for number, node in enumerate(nodes):
        packing.put_node(f"n{number}", node.devices, node.pods_max)
        for place, (used, pods) in enumerate(zip(node.used, node.pods, strict=True)):
            for pod in range(pods):
                share = Share(place, used if not pod else 0)
                packing.put(Booking(f"{number}-{place}-{pod}", f"n{number}", (share,), Origin.SEEN))
    fitting = {name: node.left_over(demand) for name, node in packing.nodes.items() if node.fits(demand)}
    best = [candidate.node for candidate in packing.best(demand, packing.nodes, count)]
    assert len(best) == min(count, len(fitting))
    least = sorted(left for left in fitting.values() if left is not None)[: len(best)]
    assert [fitting[name] for name in best] == least


def test_a_node_in_use_goes_before_an_empty_one_that_fits_as_well():
    packing = Packing()
    for name in ("a", "b"):
        packing.put_node(name, (DeviceRoom("0", "", 8), DeviceRoom("1", "", 8)))
    packing.put(Booking("p", "b", (Share(0, 8),), Origin.SEEN))
    assert [one.node for one in packing.best(Demand(4), ["a", "b"], 2)] == ["b", "a"]


def test_what_a_pod_has_booked_itself_is_free_for_it():
    packing = Packing()
    packing.put_node("a", (DeviceRoom("0", "", 8),))
    packing.put(Booking("p", "a", (Share(0, 8),), Origin.TENTATIVE))
    assert packing.best(Demand(8), ["a"], 1) == []
    assert [one.node for one in packing.best(Demand(8), ["a"], 1, uid="p")] == ["a"]


# --- Victims ----------------------------------------------------------------------------------------------------------


@st.composite
def crowds(draw: st.DrawFn) -> tuple[NodeRoom, list[Booking]]:
    devices = tuple(DeviceRoom(str(place), "", 8) for place in range(draw(st.integers(1, 3))))
    bookings = []
    for number in range(draw(st.integers(0, 6))):
        places = draw(st.sets(st.integers(0, len(devices) - 1), min_size=1, max_size=2))
        units = draw(st.integers(1, 8))
        shares = tuple(Share(place, units) for place in sorted(places))
        bookings.append(Booking(f"p{number}", "n", shares, Origin.SEEN, priority=draw(st.integers(0, 3))))
    return make_room(devices, [one.shares for one in bookings]), bookings


@given(crowds(), demands, st.integers(0, 4), st.sets(st.integers(0, 5), max_size=2))
def test_victims_free_the_devices_and_none_of_them_is_needless(
    crowd: tuple[NodeRoom, list[Booking]], demand: Demand, priority: int, numbers: set[int]
):
    node, bookings = crowd
    given_uids = {f"p{number}" for number in numbers} & {one.uid for one in bookings}
    victims = choose_victims(node, demand, bookings, priority, given_uids)
    lower = [one for one in bookings if one.priority < priority or one.uid in given_uids]
    if victims is None:
        assert not fits_without(node, demand, lower)
        return
    assert fits_without(node, demand, victims)
    chosen = {one.uid for one in victims}
    assert given_uids <= chosen
    added = [one for one in victims if one.uid not in given_uids]
    assert all(one.priority < priority for one in added)
    for one in added:
        assert not fits_without(node, demand, [other for other in victims if other.uid != one.uid])


def test_one_pod_on_the_device_goes_rather_than_two_elsewhere():
    node = make_room((DeviceRoom("0", "", 8), DeviceRoom("1", "", 8)), [[Share(0, 4)], [Share(0, 4)], [Share(1, 8)]])
    small, other, large = (
        Booking(uid, "n", (Share(place, units),), Origin.SEEN)
        for uid, place, units in (("s", 0, 4), ("o", 0, 4), ("l", 1, 8))
    )
    victims = choose_victims(node, Demand(8), [small, other, large], 1)
    assert victims == (large,)
    # The scheduler's choice of one on each device frees neither.
    victims = choose_victims(node, Demand(8), [small, other, large], 1, {"s"})
    assert victims is not None
    assert {one.uid for one in victims} in ({"s", "o"}, {"s", "l"})
