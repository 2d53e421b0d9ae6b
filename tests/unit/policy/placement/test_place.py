"""What GetPreferredAllocation answers, for every strategy: always valid, always the same, and sensible."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.model.device import Device
from fairlead.model.errors import BadAsk, UnknownSlots
from fairlead.model.inventory import Inventory, Links
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot, Strategy, Terms
from fairlead.policy.offering.sharing import device_of, slots_for
from fairlead.policy.placement import facts as table
from fairlead.policy.placement import place as placement
from fairlead.policy.placement.align import align
from fairlead.policy.placement.facts import slot_table_of
from fairlead.policy.placement.place import BY_BOUNDED_SEARCH, BY_INDEX, BY_NUMA, LINKS_MAX, Choice, place

Numa = Callable[[int], tuple[int, ...]]
NAME = ResourceName("example.com/gpu")
EVERY = list(Strategy)


def gpu(number: int) -> DeviceId:
    return DeviceId(f"gpu{number}")


def node(
    count: int,
    strategy: Strategy,
    *,
    replicas: int = 1,
    links: dict[tuple[int, int], int] | None = None,
    numa: Numa = lambda _: (),
    parent: Callable[[int], str | None] = lambda _: None,
) -> Resource:
    devices = tuple(
        Device(gpu(n), index=str(n), numa_nodes=numa(n), parent=DeviceId(of) if (of := parent(n)) else None)
        for n in range(count)
    )
    scores = {(gpu(one), gpu(other)): score for (one, other), score in (links or {}).items()}
    slots = tuple(slot for device in devices for slot in slots_for(device, replicas))
    return Resource(NAME, slots, Inventory(devices, Links(scores)), terms=Terms(strategy=strategy))


def ids(resource: Resource, *, without: Iterable[str] = ()) -> list[SlotId]:
    return [slot.id for slot in resource.slots if slot.id not in set(without)]


def per_device(choice: Choice) -> dict[str, int]:
    return dict(Counter(device_of(slot) for slot in choice.slots))


# Requests that cannot be met.


@pytest.mark.parametrize(
    ("available", "must", "size", "words"),
    [
        ("012", "", 0, "asked to place 0 devices"),
        ("012", "", -1, "asked to place -1 devices"),
        ("012", "", 4, "asked to place 4 devices, but only 3 are available"),
        ("0012", "", 4, "but only 3 are available"),
        ("012", "01", 1, "2 devices must be included in a request for 1"),
        ("01", "2", 2, "gpu2 must be included, but is not available"),
    ],
)
@pytest.mark.parametrize("strategy", EVERY)
def test_a_request_that_makes_no_sense_is_refused_in_words(
    strategy: Strategy, available: str, must: str, size: int, words: str
) -> None:
    resource = node(3, strategy)
    with pytest.raises(BadAsk, match=words):
        place(resource, [SlotId(f"gpu{n}") for n in available], [SlotId(f"gpu{n}") for n in must], size)


@pytest.mark.parametrize("field", ["available", "must"])
def test_ids_that_are_not_in_the_list_are_named(field: str) -> None:
    resource = node(2, Strategy.PACK)
    strange = [SlotId("gpu7")]
    with pytest.raises(UnknownSlots, match="gpu7") as caught:
        place(resource, ids(resource) + (strange if field == "available" else []), strange, 1)
    assert caught.value.ids == ("gpu7",)


# What holds for every satisfiable request.


@st.composite
def nodes(draw: st.DrawFn) -> Resource:
    count = draw(st.integers(1, 9))
    score = st.sampled_from([0, 0, 10, 50, 100])
    links = {pair: draw(score) for pair in combinations(range(count), 2)} if draw(st.booleans()) else {}
    numa = draw(st.lists(st.sampled_from([(), (0,), (1,), (0, 1)]), min_size=count, max_size=count))
    parents = draw(st.lists(st.sampled_from([None, "p", "q"]), min_size=count, max_size=count))
    resource = node(
        count,
        draw(st.sampled_from(EVERY)),
        replicas=draw(st.integers(1, 3)),
        links=links,
        numa=numa.__getitem__,
        parent=parents.__getitem__,
    )
    gone = Slot(SlotId("gone"), DeviceId("gone-device"), 5.0)
    leftover = Slot(SlotId("gpu0::old"), gpu(0), 5.0)
    extra = draw(st.sampled_from([(), (gone,), (leftover,), (gone, leftover)]))
    return replace(resource, slots=resource.slots + extra)


@given(nodes(), st.randoms(use_true_random=False), st.data())
@settings(max_examples=300)
def test_the_answer_is_valid_and_does_not_depend_on_the_order_of_the_request(
    resource: Resource, rng: random.Random, data: st.DataObject
) -> None:
    every = ids(resource)
    available = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    size = data.draw(st.integers(1, len(available)))
    must = rng.sample(available, rng.randint(0, size))
    first = place(resource, available, must, size, explain=True)
    assert len(first.slots) == len(set(first.slots)) == size
    assert set(must) <= set(first.slots) <= set(available)
    again = rng.sample(available, len(available)) + available[:1]  # an id twice does no harm
    fresh = replace(resource)  # the same snapshot, but nothing remembered
    assert place(fresh, again, must[::-1], size, explain=True) == first
    assert sum(reason.picked for reason in first.reasons) == size


def test_reasons_are_built_only_when_asked_for() -> None:
    resource = node(3, Strategy.ALIGNED, links={(0, 1): 10, (1, 2): 20})
    assert place(resource, ids(resource), [], 2).reasons == ()
    reasons = place(resource, ids(resource), [SlotId("gpu1")], 2, explain=True).reasons
    assert [(r.device, r.picked, r.score, r.why) for r in reasons] == [
        ("gpu0", 0, 10, "links to the chosen: 10; kept for the next request"),
        ("gpu1", 1, 20, "must be included; links to the chosen: 20"),
        ("gpu2", 1, 20, "links to the chosen: 20"),
    ]


def test_reasons_without_links_count_free_slots() -> None:
    resource = node(2, Strategy.PACK, replicas=2)
    reasons = place(resource, ids(resource, without=["gpu0::0"]), [], 1, explain=True).reasons
    assert [(r.device, r.picked, r.score, r.why) for r in reasons] == [
        ("gpu0", 1, 1, "1 of 2 slots available"),
        ("gpu1", 0, 2, "2 of 2 slots available"),
    ]


# Whole devices, aligned.


def test_aligned_goes_by_links_and_leaves_out_nobody_for_missing_data() -> None:
    resource = node(5, Strategy.ALIGNED, links={(1, 3): 100})  # nothing is known of 0, 2 and 4
    assert place(resource, ids(resource), [], 2) == Choice((SlotId("gpu1"), SlotId("gpu3")))
    assert place(resource, ids(resource), [], 1).slots == ("gpu0",)
    assert place(resource, ids(resource, without=["gpu3"]), [], 2).slots == ("gpu0", "gpu1")


def test_a_dead_device_without_data_does_not_spoil_the_others() -> None:
    resource = node(4, Strategy.ALIGNED, links={(0, 1): 50, (1, 2): 100, (2, 3): 50})
    dead = replace(resource, inventory=replace(resource.inventory, devices=resource.inventory.devices[:3]))
    assert place(dead, ids(dead), [], 4).slots == ("gpu0", "gpu1", "gpu2", "gpu3")
    assert place(dead, ids(dead, without=["gpu3"]), [], 2).slots == ("gpu1", "gpu2")


def test_four_singles_then_two_pairs_on_four_pairs_of_devices() -> None:
    links = {(n, n + 1): 400 for n in range(0, 8, 2)}
    resource = node(8, Strategy.ALIGNED, links=links)
    free = set(ids(resource))
    for _ in range(4):
        free -= set(place(resource, list(free), [], 1).slots)
    for _ in range(2):
        pair = place(resource, list(free), [], 2).slots
        assert pair in {("gpu0", "gpu1"), ("gpu2", "gpu3"), ("gpu4", "gpu5"), ("gpu6", "gpu7")}
        free -= set(pair)


def test_without_links_aligned_groups_by_numa_node() -> None:
    resource = node(8, Strategy.ALIGNED, numa=lambda n: (n % 2,))
    choice = place(resource, ids(resource), [], 3)
    assert (choice.slots, choice.fallback) == (("gpu0", "gpu2", "gpu4"), BY_NUMA)


def test_without_links_a_broken_node_is_used_up_before_a_whole_one_is_broken() -> None:
    resource = node(8, Strategy.ALIGNED, numa=lambda n: (n // 4,))
    free = ids(resource, without=["gpu4"])
    assert place(resource, free, [], 2).slots == ("gpu5", "gpu6")
    assert place(resource, free, [], 4).slots == ("gpu0", "gpu1", "gpu2", "gpu3")
    assert place(resource, free, [SlotId("gpu7")], 2).slots == ("gpu5", "gpu7")


def test_without_links_a_large_request_spans_as_few_nodes_as_it_can() -> None:
    resource = node(9, Strategy.ALIGNED, numa=lambda n: (n // 2 if n < 6 else 3,))  # 2, 2, 2 and 3 devices
    assert place(resource, ids(resource), [], 5).slots == ("gpu0", "gpu1", "gpu6", "gpu7", "gpu8")


def test_with_nothing_known_the_lowest_indexes_are_taken() -> None:
    resource = node(12, Strategy.ALIGNED)
    choice = place(resource, ids(resource)[::-1], [SlotId("gpu11")], 3)
    assert (choice.slots, choice.fallback) == (("gpu0", "gpu1", "gpu11"), BY_INDEX)


def test_many_devices_are_searched_within_bounds_and_very_many_not_by_links() -> None:
    links = {(n, n + 1): 10 for n in range(0, LINKS_MAX + 10, 2)}
    many = node(20, Strategy.ALIGNED, links={pair: s for pair, s in links.items() if pair[1] < 20})
    choice = place(many, ids(many), [], 2)
    assert (choice.slots, choice.fallback) == (("gpu0", "gpu1"), BY_BOUNDED_SEARCH)
    very_many = node(LINKS_MAX + 1, Strategy.ALIGNED, links=links)
    choice = place(very_many, ids(very_many), [], 3)
    assert (choice.slots, choice.fallback) == (("gpu0", "gpu1", "gpu2"), BY_INDEX)


# Whole devices, packed and spread.


def test_pack_fills_the_node_that_is_in_use_and_spread_avoids_it() -> None:
    for strategy, expected in ((Strategy.PACK, ("gpu5", "gpu6")), (Strategy.SPREAD, ("gpu0", "gpu1"))):
        resource = node(8, strategy, numa=lambda n: (n // 4,))
        assert place(resource, ids(resource, without=["gpu4", "gpu7"]), [], 2).slots == expected


def test_spread_takes_from_each_node_in_turn() -> None:
    resource = node(8, Strategy.SPREAD, numa=lambda n: (n // 4,))
    assert place(resource, ids(resource), [], 3).slots == ("gpu0", "gpu1", "gpu4")


def test_partitions_count_as_shares_of_their_parent() -> None:
    parent: Callable[[int], str] = lambda n: f"card{n // 3}"  # noqa: E731  # a table of three per card
    for strategy, expected in ((Strategy.PACK, ("gpu4", "gpu5")), (Strategy.SPREAD, ("gpu0", "gpu6"))):
        resource = node(9, strategy, parent=parent, numa=lambda _: (0,))
        assert place(resource, ids(resource, without=["gpu3"]), [], 2).slots == expected


def test_without_nodes_and_parents_the_strongest_links_make_the_groups() -> None:
    links = {pair: 10 for pair in combinations(range(6), 2)} | {(0, 3): 50, (1, 4): 50, (2, 5): 50}  # noqa: C420  # dict.fromkeys reads worse here
    packed = node(6, Strategy.PACK, links=links)
    assert place(packed, ids(packed, without=["gpu0", "gpu1"]), [], 1).slots == ("gpu3",)
    spread = node(6, Strategy.SPREAD, links=links)
    assert place(spread, ids(spread), [], 3).slots == ("gpu0", "gpu1", "gpu2")
    assert place(spread, ids(spread), [SlotId("gpu0")], 2).slots == ("gpu0", "gpu1")


# Replicas. The first ones are the cases that NVIDIA's plugin is tested by.


@pytest.mark.parametrize(
    ("devices", "replicas", "size", "expected"),
    [(2, 4, 2, [1, 1]), (3, 2, 3, [1, 1, 1]), (2, 4, 4, [2, 2])],
)
@pytest.mark.parametrize("strategy", [Strategy.SPREAD, Strategy.ALIGNED])
def test_spread_replicas_evenly(
    strategy: Strategy, devices: int, replicas: int, size: int, expected: list[int]
) -> None:
    resource = node(devices, strategy, replicas=replicas)
    assert list(per_device(place(resource, ids(resource), [], size)).values()) == expected


@pytest.mark.parametrize("strategy", [Strategy.SPREAD, Strategy.ALIGNED])
def test_between_equally_used_devices_the_one_least_taken_from_comes_next(strategy: Strategy) -> None:
    resource = node(2, strategy, replicas=2)
    choice = place(resource, ids(resource, without=["gpu1::0"]), [], 2)
    assert choice.slots == ("gpu0::0", "gpu1::1")


@pytest.mark.parametrize(
    ("devices", "replicas", "size", "expected"),
    [(2, 4, 2, [2]), (2, 4, 4, [4]), (2, 4, 5, [4, 1]), (3, 2, 3, [2, 1])],
)
def test_pack_replicas_onto_fewest_devices(devices: int, replicas: int, size: int, expected: list[int]) -> None:
    resource = node(devices, Strategy.PACK, replicas=replicas)
    assert list(per_device(place(resource, ids(resource), [], size)).values()) == expected


def test_pack_takes_the_fullest_device_that_fits_before_it_opens_another() -> None:
    resource = node(3, Strategy.PACK, replicas=4)
    free = ids(resource, without=["gpu1::0", "gpu1::2", "gpu2::0", "gpu2::1", "gpu2::2"])  # 4, 2 and 1 free
    assert place(resource, free, [], 1).slots == ("gpu2::3",)
    assert place(resource, free, [], 2).slots == ("gpu1::1", "gpu1::3")
    assert per_device(place(resource, free, [], 5)) == {"gpu0": 4, "gpu2": 1}
    assert per_device(place(resource, free, [SlotId("gpu0::3")], 2)) == {"gpu0": 2}


def test_pack_leaves_an_idle_device_idle_while_others_have_room() -> None:
    # As recorded from NVIDIA's plugin: 3, 4, 4 and 5 of 5 free.
    resource = node(4, Strategy.PACK, replicas=5)
    free = ids(resource, without=["gpu0::0", "gpu0::1", "gpu1::0", "gpu2::0"])
    assert per_device(place(resource, free, [], 5)) == {"gpu0": 1, "gpu1": 4}
    assert per_device(place(resource, free, [], 12)) == {"gpu0": 3, "gpu1": 4, "gpu3": 5}


def test_pack_leaves_a_device_whole_while_partitions_of_others_are_free() -> None:
    parts = tuple(Device(DeviceId(f"mig-{gpu}-{n}"), parent=f"gpu{gpu}") for gpu in range(3) for n in range(4))
    slots = tuple(Slot(SlotId(str(part.id)), part.id) for part in parts)
    resource = Resource(ResourceName("example.com/mig"), slots, Inventory(parts), terms=Terms(strategy=Strategy.PACK))
    free = ids(resource, without=["mig-0-0", "mig-0-1", "mig-1-0"])  # 2, 3 and 4 of 4
    chosen = place(resource, free, [], 4).slots
    assert not any(slot.startswith("mig-2") for slot in chosen)
    assert place(resource, free, [], 3).slots == ("mig-1-1", "mig-1-2", "mig-1-3")


def test_the_lowest_ordinal_comes_first_and_ten_after_nine() -> None:
    resource = node(1, Strategy.PACK, replicas=12)
    assert place(resource, ids(resource)[::-1], [], 11).slots == tuple(f"gpu0::{n}" for n in range(11))


def test_what_must_be_included_counts_as_used() -> None:
    resource = node(2, Strategy.SPREAD, replicas=4)
    choice = place(resource, ids(resource), [SlotId("gpu0::0"), SlotId("gpu0::1")], 3)
    assert per_device(choice) == {"gpu0": 2, "gpu1": 1}


def test_aligned_replicas_take_linked_devices_among_equally_used_ones() -> None:
    links = {(1, 3): 100, (0, 2): 10}
    resource = node(4, Strategy.ALIGNED, replicas=2, links=links)
    assert place(resource, ids(resource), [], 2) == Choice((SlotId("gpu1::0"), SlotId("gpu3::0")))
    # Device 3 is used more, so it is not among the equals; then 0 and 2 belong together.
    assert place(resource, ids(resource, without=["gpu3::0"]), [], 2).slots == ("gpu0::0", "gpu2::0")


def test_aligned_replicas_go_with_what_the_request_has_already() -> None:
    resource = node(4, Strategy.ALIGNED, replicas=2, links={(1, 3): 100, (0, 2): 10, (0, 1): 20})
    assert place(resource, ids(resource), [SlotId("gpu3::1")], 2).slots == ("gpu1::0", "gpu3::1")


def test_aligned_replicas_without_links_go_by_numa_node() -> None:
    resource = node(4, Strategy.ALIGNED, replicas=2, numa=lambda n: (n % 2,))
    choice = place(resource, ids(resource), [SlotId("gpu1::0")], 2)
    assert (choice.slots, choice.fallback) == (("gpu1::0", "gpu3::0"), BY_NUMA)


def test_aligned_replicas_of_many_devices_are_bounded() -> None:
    resource = node(20, Strategy.ALIGNED, replicas=2, links={(4, 9): 10})
    choice = place(resource, ids(resource), [], 2)
    assert (choice.slots, choice.fallback) == (("gpu4::0", "gpu9::0"), BY_BOUNDED_SEARCH)


# What is remembered.


def test_the_table_is_kept_with_the_snapshot_and_goes_with_it() -> None:
    resource = node(2, Strategy.PACK)
    assert slot_table_of(resource) is slot_table_of(resource)
    before = len(table._tables)
    del resource
    assert len(table._tables) == before - 1


def test_other_links_are_another_table() -> None:
    resource = node(3, Strategy.ALIGNED, links={(0, 1): 1})
    rewired = replace(resource, inventory=replace(resource.inventory, links=Links({(gpu(1), gpu(2)): 5})))
    assert slot_table_of(rewired).topology is not slot_table_of(resource).topology
    assert place(rewired, ids(rewired), [], 2).slots == ("gpu1", "gpu2")


def test_answers_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = node(6, Strategy.ALIGNED, links={(n, n + 1): 10 for n in range(5)})
    calls: list[int] = []

    def counted(*args: object) -> tuple[int, ...]:
        calls.append(1)
        return align(*args)  # type: ignore[arg-type]  # handed through as they came

    monkeypatch.setattr(table, "align", counted)
    monkeypatch.setattr(table, "_MEMO_MAX", 2)
    for sizes, asked in (([2, 2, 2], 1), ([3], 2), ([4], 3), ([2], 4)):
        for size in sizes:
            place(resource, ids(resource), [], size)
        assert len(calls) == asked


def test_every_strategy_has_both_forms() -> None:
    assert set(placement._WHOLE) == set(placement._SHARED) == set(Strategy)
