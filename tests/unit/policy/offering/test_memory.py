"""Memory as slots: units partition each device, ids say what they mean for ever, and the list always fits."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.policy.placement.cards import GIB, NAME, card, node, shared

from fairlead.model.device import Device
from fairlead.model.errors import Oversize
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import MemoryTerms, Resource, Strategy, Terms
from fairlead.policy.offering import budget, memory
from fairlead.policy.offering.memory import MIB, choose_unit, cut, read_id, short_name
from fairlead.policy.offering.rules import ANY, Rule, check_rules, make_offering
from fairlead.policy.offering.stall import most_slots
from fairlead.policy.placement.place import place

CARDS = (8 * GIB, 16 * GIB, 24 * GIB, 81_559 * MIB, 80 * GIB, 143_771 * MIB, 141 * GIB, 5 * MIB + 7)
nodes = st.lists(st.sampled_from(CARDS), min_size=1, max_size=8).map(lambda sizes: node(*sizes))
units = st.sampled_from([GIB, 512 * MIB, 1000 * MIB, 3 * GIB])


@given(nodes)
def test_the_units_of_a_device_are_its_memory_and_no_more(devices: tuple[Device, ...]):
    resource = shared(devices)
    for device in devices:
        slots = resource.slots_of.get(device.id, ())
        assert len(slots) * resource.unit_bytes <= device.memory_bytes < (len(slots) + 1) * resource.unit_bytes
        parts = [read_id(slot.id) for slot in slots]
        assert [part.ordinal for part in parts if part] == list(range(len(slots)))
        assert {(part.short, part.unit_bytes) for part in parts if part} <= {
            (short_name(device.id), resource.unit_bytes)
        }


@given(nodes, st.randoms())
def test_ids_are_unique_short_and_do_not_depend_on_the_order_or_the_company_of_devices(
    devices: tuple[Device, ...], rng: random.Random
):
    resource = shared(devices)
    ids = {slot.id: slot.device for slot in resource.slots}
    assert len(ids) == len(resource.slots)
    assert max(map(len, ids)) <= 20
    mixed = shared(tuple(rng.sample(devices, len(devices))))
    assert {slot.id: slot.device for slot in mixed.slots} == ids
    alone = replace(devices[0], index="9")
    kept = make_offering(
        Inventory((alone,)), [Rule(ANY, NAME, terms=Terms(memory=MemoryTerms()))], {NAME: resource.unit_bytes}
    ).resources
    assert {slot.id for part in kept for slot in part.slots} == {name for name, of in ids.items() if of == alone.id}


@given(nodes)
def test_a_chosen_unit_is_the_smallest_that_the_kubelet_can_bear(
    devices: tuple[Device, ...],
):
    unit = choose_unit(devices)
    resource = shared(devices)
    assert resource.unit_bytes == unit
    assert budget.worst_bytes(resource) == memory.list_bytes(devices, unit) <= memory.ROOM_BYTES
    assert len(resource.slots) <= most_slots()
    if unit > MIB:
        assert memory.count_slots(devices, unit // 2) > most_slots()


@pytest.mark.parametrize(
    ("cards", "size", "unit"),
    [
        (1, 16 * GIB, 16),
        (1, 80 * GIB, 64),
        (8, 24 * GIB, 128),
        (8, 80 * GIB, 512),
        (8, 141 * GIB, 1024),
        (16, 288 * GIB, 4096),
    ],
)
def test_common_nodes_work_out_of_the_box(cards: int, size: int, unit: int):
    assert choose_unit(node(*[size] * cards)) == unit * MIB


def test_a_unit_in_use_stays_when_cards_come_and_go_and_changes_only_when_its_list_would_not_fit():
    devices = node(*[80 * GIB] * 8)
    rule = Rule(ANY, NAME, terms=Terms(memory=MemoryTerms()))

    def unit(present: tuple[Device, ...], keep: int) -> int:
        return make_offering(Inventory(present), [rule], {NAME: keep}).resources[0].unit_bytes

    assert unit(devices[:1], 16 * MIB) == 16 * MIB
    assert unit(node(*[80 * GIB] * 16), 16 * MIB) == 16 * MIB  # within the limit, though not within half of it
    assert unit(node(*[80 * GIB] * 64), 16 * MIB) == 4 * GIB


def test_a_fixed_unit_that_does_not_fit_is_refused_with_one_that_does():
    devices = node(*[141 * GIB] * 8)
    offering = make_offering(Inventory(devices), [Rule(ANY, NAME, terms=Terms(memory=MemoryTerms(MIB, grow=False)))])
    assert offering.resources == ()
    assert offering.refused.keys() == {NAME}
    (problem,) = offering.problems
    assert "1,155,072 slots of 1MiB" in problem
    assert "Set memory.unit to 16MiB or more, or to auto" in problem
    assert shared(devices, MemoryTerms(16 * MIB, grow=False)).unit_bytes == 16 * MIB
    with pytest.raises(Oversize):
        memory.settle_unit(devices, MemoryTerms(8 * MIB, grow=False))


@given(nodes, units)
def test_a_unit_that_may_grow_is_doubled_until_it_fits(devices: tuple[Device, ...], least: int):
    grown = memory.settle_unit(devices, MemoryTerms(least))
    assert grown % least == 0
    assert memory.list_bytes(devices, grown) <= memory.ROOM_BYTES
    assert memory.settle_unit(node(*[141 * GIB] * 8), MemoryTerms(3 * MIB)) == 768 * MIB


def test_how_long_the_kubelet_may_be_busy_can_be_given():
    devices = node(*[80 * GIB] * 8)
    assert choose_unit(devices, MemoryTerms(max_stall_s=18.0)) == 64 * MIB
    assert choose_unit(devices, MemoryTerms(max_stall_s=0.0)) == 16 * MIB  # only the length of the list counts
    theirs = MemoryTerms(ids="fakeID---{index}---")
    assert choose_unit(devices[:1], theirs, memory.KUBELET_MESSAGE_MAX_BYTES) == MIB
    assert choose_unit(devices[:1], replace(theirs, max_stall_s=0.5), memory.KUBELET_MESSAGE_MAX_BYTES) == 64 * MIB


def test_cards_of_unequal_size_each_give_what_they_have():
    resource = shared(node(10 * GIB, 20 * GIB, 0, 100 * MIB), MemoryTerms(GIB, grow=False))
    assert [len(slots) for slots in resource.slots_of.values()] == [10, 20]
    problems = make_offering(
        Inventory(resource.inventory.devices), [Rule(ANY, NAME, terms=Terms(memory=MemoryTerms(GIB)))]
    ).problems
    assert "does not say how much memory it has" in problems[0]
    assert "less than one unit of 1GiB" in problems[1]


def test_a_short_name_is_the_beginning_of_a_uuid_or_a_sum_of_the_id():
    assert short_name(DeviceId("GPU-5c89abcd-1111-4222-8333-444455556666")) == "5c89abcd"
    assert short_name(DeviceId("0000:3b:00.0")) == short_name(DeviceId("0000:3b:00.0")) != short_name(DeviceId("x"))
    assert len({short_name(DeviceId(f"card{number}")) for number in range(2000)}) == 2000


def test_two_devices_with_one_short_name_are_not_mixed_up():
    first, second = (
        Device(DeviceId(f"{kind}-5c89abcd-1111-4222-8333-444455556666"), index=index, memory_bytes=GIB)
        for kind, index in (("GPU", "0"), ("XPU", "1"))
    )
    offering = make_offering(Inventory((second, first)), [Rule(ANY, NAME, terms=Terms(memory=MemoryTerms(GIB)))])
    assert [slot.device for slot in offering.resources[0].slots] == [first.id]
    assert "'5c89abcd'" in offering.problems[0]


def test_a_whole_device_may_not_have_the_id_of_a_piece_of_memory():
    stranger = Device(DeviceId("5c89abcd-16m-3"))
    assert "parts of memory have such ids" in make_offering(Inventory((stranger,)), [Rule(ANY, NAME)]).problems[0]


@pytest.mark.parametrize("text", ["", "GPU-1::3", "5c89abcd-16m", "5c89abcd-16m-03", "5c89abcd-0m-1", "5C89ABCD-1m-1"])
def test_other_ids_are_not_taken_for_memory(text: str):
    assert read_id(text) is None


def test_the_unit_that_pods_hold_is_read_from_their_ids():
    held = [slot.id for slot in cut(card(0, 16 * GIB), 8 * MIB)[:5]] + [SlotId("x"), SlotId("5c89abcd-4m-1")]
    assert memory.unit_in_use(held) == 8 * MIB
    assert memory.unit_in_use([SlotId("GPU-1")]) is None


# --- Placement --------------------------------------------------------------------------------------------------------


@st.composite
def occupied(draw: st.DrawFn) -> tuple[Resource, list[SlotId]]:
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    strategy = draw(st.sampled_from(Strategy))
    resource = shared(node(*(size * GIB for size in sizes)), MemoryTerms(GIB, grow=False), strategy=strategy)
    ids = [slot.id for slot in resource.slots]
    return resource, draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))


@given(occupied(), st.data())
def test_what_fits_on_one_device_is_placed_on_one_device(given_: tuple[Resource, list[SlotId]], data: st.DataObject):
    resource, free = given_
    owner = {slot.id: slot.device for slot in resource.slots}
    room = Counter(owner[slot] for slot in free)
    size = data.draw(st.integers(1, max(room.values())))
    chosen = place(resource, free, [], size).slots
    (device,) = {owner[slot] for slot in chosen}
    assert len(set(chosen)) == size
    assert set(chosen) <= set(free)
    fit = {name: count for name, count in room.items() if count >= size}
    if resource.terms.strategy is Strategy.SPREAD:
        totals = {name: len(slots) for name, slots in resource.slots_of.items()}
        assert fit[device] / totals[device] == max(count / totals[name] for name, count in fit.items())
    else:
        assert fit[device] == min(fit.values())


@given(occupied(), st.data())
def test_what_fits_on_no_single_device_takes_as_few_as_possible(
    given_: tuple[Resource, list[SlotId]], data: st.DataObject
):
    resource, free = given_
    owner = {slot.id: slot.device for slot in resource.slots}
    size = data.draw(st.integers(1, len(free)))
    chosen = place(resource, free, [], size).slots
    assert len(set(chosen)) == size
    counts = sorted(Counter(owner[slot] for slot in free).values(), reverse=True)
    fewest = next(number for number in range(1, len(counts) + 1) if sum(counts[:number]) >= size)
    assert len({owner[slot] for slot in chosen}) == fewest


@pytest.mark.parametrize(("strategy", "number"), [(Strategy.PACK, 1), (Strategy.ALIGNED, 1), (Strategy.SPREAD, 2)])
def test_pack_takes_the_tightest_card_and_spread_the_one_with_the_largest_part_free(strategy: Strategy, number: int):
    resource = shared(node(8 * GIB, 4 * GIB, 16 * GIB), MemoryTerms(GIB, grow=False), strategy=strategy)
    free = [slot.id for slots in resource.slots_of.values() for slot in slots[1:]]
    chosen = place(resource, free, [], 3).slots
    assert {resource.by_id[slot].device for slot in chosen} == {resource.inventory.devices[number].id}


def test_what_was_remembered_of_a_resource_goes_with_its_slots():
    devices = node(8 * GIB, 8 * GIB)
    for unit in (GIB, 2 * GIB, GIB):
        resource = shared(devices, MemoryTerms(unit, grow=False))
        ids = [slot.id for slot in resource.slots]
        assert place(resource, ids, [], 3).slots == tuple(ids[:3])


def test_what_an_init_container_had_stays_on_its_device():
    resource = shared(node(8 * GIB, 4 * GIB, 16 * GIB), MemoryTerms(GIB, grow=False), strategy=Strategy.SPREAD)
    ids = [slot.id for slot in resource.slots]
    chosen = place(resource, ids, ids[2:4], 5).slots
    assert {slot.partition("-")[0] for slot in chosen} == {ids[2].partition("-")[0]}


# --- Rules ------------------------------------------------------------------------------------------------------------


def test_memory_and_replicas_are_not_mixed():
    assert (
        "both replicas and memory" in check_rules([Rule(ANY, NAME, replicas=2, terms=Terms(memory=MemoryTerms()))])[0]
    )
    assert "memory has no effect" in check_rules([Rule(ANY, None, terms=Terms(memory=MemoryTerms()))])[0]
    two = [
        Rule(replace(ANY, ids=("a",)), NAME, terms=Terms(memory=MemoryTerms())),
        Rule(ANY, NAME, terms=Terms(memory=MemoryTerms(GIB))),
    ]
    assert "another way to share memory" in check_rules(two)[0]
    whole = Rule(resource=ResourceName("example.com/gpu"))
    assert check_rules([Rule(ANY, NAME, terms=Terms(memory=MemoryTerms()), also=(whole,))]) == ()
