"""Units of memory over time: cards come and go, daemons restart, rules change, and what pods hold keeps its meaning."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace
from tests.unit.policy.placement.cards import GIB, NAME, node

from fairlead.engine.listing import Listing
from fairlead.model.device import Device
from fairlead.model.inventory import ALL_HEALTHY, Inventory
from fairlead.model.names import ResourceName, SlotId
from fairlead.model.resource import MemoryTerms, Resource, Terms
from fairlead.policy.offering.memory import MIB, read_id
from fairlead.policy.offering.rules import ANY, Rule

AUTO = (Rule(ANY, NAME, terms=Terms(memory=MemoryTerms())),)
FINE = (Rule(ANY, NAME, terms=Terms(memory=MemoryTerms(MIB, grow=False))),)
Held = Mapping[ResourceName, frozenset[SlotId]]


def settle(
    listing: Listing,
    devices: tuple[Device, ...],
    rules: tuple[Rule, ...] = AUTO,
    held: Held | None = None,
    at: float = 0,
) -> Resource:
    (resource,) = listing.settle(Inventory(devices), rules, held if held is not None else {}, at)
    return resource


def offered(resource: Resource) -> set[str]:
    return {slot.id for slot in resource.slots if slot.usable(ALL_HEALTHY)}


def test_lost_cards_stay_listed_and_come_back_with_the_same_ids():
    """One card alone would have a finer unit. It keeps the one that it had among eight."""
    listing, devices = Listing(), node(*[80 * GIB] * 8)
    before = settle(listing, devices)
    lost = settle(listing, devices[:1], at=10)
    assert lost.unit_bytes == before.unit_bytes == 512 * MIB
    assert {slot.id for slot in lost.slots} == {slot.id for slot in before.slots}
    gone = settle(listing, devices[:1], at=100)
    assert (gone.unit_bytes, len(gone.slots)) == (512 * MIB, 160)
    assert settle(listing, devices, at=101).slots == before.slots
    assert settle(Listing(), devices[:1]).unit_bytes == 64 * MIB


def test_a_new_daemon_goes_on_with_the_unit_that_pods_hold():
    """Seven cards alone would have a finer unit; then the ids of running pods would be somebody else's."""
    devices = node(*[80 * GIB] * 8)
    before = settle(Listing(), devices)
    held = {NAME: frozenset(slot.id for slot in before.slots_of[devices[3].id][:100])}
    assert settle(Listing(), devices[2:4]).unit_bytes < before.unit_bytes
    after = settle(Listing(), devices[2:4], held=held)
    assert after.unit_bytes == before.unit_bytes
    assert held[NAME] <= offered(after)


def test_memory_held_in_another_unit_is_not_given_away_again():
    devices = node(16 * GIB, 16 * GIB)
    held = {NAME: frozenset(slot.id for slot in settle(Listing(), devices).slots_of[devices[1].id][:10])}
    coarse = (Rule(ANY, NAME, terms=Terms(memory=MemoryTerms(GIB, grow=False))),)
    after = settle(Listing(), devices, coarse, held)
    assert {slot.device for slot in after.slots if slot.usable(ALL_HEALTHY)} == {devices[0].id}
    free = settle(Listing(), devices, coarse, {NAME: frozenset()})
    assert len(offered(free)) == 32


def test_a_card_whose_memory_a_pod_holds_is_not_given_whole_to_another_and_the_other_way_round():
    devices = node(16 * GIB, 16 * GIB)
    piece = settle(Listing(), devices).slots_of[devices[0].id][0].id
    whole = settle(Listing(), devices, (Rule(ANY, NAME),), {NAME: frozenset({piece})})
    assert offered(whole) == {devices[1].id}
    shared = settle(Listing(), devices, AUTO, {NAME: frozenset({SlotId(devices[0].id)})})
    assert {slot.device for slot in shared.slots if slot.usable(ALL_HEALTHY)} == {devices[1].id}


def test_a_changed_unit_lists_the_old_slots_until_they_are_free():
    listing, devices = Listing(), node(16 * GIB)
    before = settle(listing, devices)
    coarse = (Rule(ANY, NAME, terms=Terms(memory=MemoryTerms(GIB, grow=False))),)
    after = settle(listing, devices, coarse, at=1)
    units = {part.unit_bytes: part for slot in after.slots if (part := read_id(slot.id))}
    assert set(units) == {16 * MIB, GIB}
    assert {slot.id for slot in before.slots}.isdisjoint(offered(after))
    assert len(settle(listing, devices, coarse, at=100).slots) == 16


def test_a_unit_that_is_refused_on_reload_leaves_the_old_one_in_force():
    listing, devices = Listing(), node(*[141 * GIB] * 8)
    before = settle(listing, devices)
    after = settle(listing, devices, FINE, at=1)
    assert after.slots == before.slots
    assert "Set memory.unit to" in listing.problems[0]
    less = settle(listing, devices[1:], FINE, at=2)
    assert {slot.device for slot in less.slots if slot.retired_s is None} == {device.id for device in devices[1:]}


def test_a_resource_that_has_not_changed_is_the_same_object():
    listing, devices = Listing(), node(*[16 * GIB] * 2)
    assert settle(listing, devices) is settle(listing, tuple(replace(device) for device in devices))


def test_memory_held_in_another_unit_is_not_given_away_while_the_kubelet_is_silent():
    devices = node(16 * GIB, 16 * GIB)
    held = {NAME: frozenset(slot.id for slot in settle(Listing(), devices).slots_of[devices[1].id][:10])}
    coarse = (Rule(ANY, NAME, terms=Terms(memory=MemoryTerms(GIB, grow=False))),)
    listing = Listing()
    before = offered(settle(listing, devices, coarse, held))
    assert len(before) == 16
    (silent,) = listing.settle(Inventory(devices), coarse, None, 1.0)
    assert offered(silent) == before
    assert len(offered(settle(listing, devices, coarse, {}, at=2))) == 32


def test_memory_held_under_ids_of_another_plugin_is_not_given_away_under_other_ids_or_another_name():
    devices, theirs = node(16 * GIB, 16 * GIB), MemoryTerms(GIB, ids="fakeID---{index}---")
    held = {NAME: frozenset({SlotId("fakeID---1---0")})}
    for rule in (
        Rule(ANY, NAME, terms=Terms(memory=MemoryTerms(GIB))),
        Rule(ANY, ResourceName("example.com/other"), terms=Terms(memory=theirs)),
    ):
        listing = Listing()
        settle(listing, devices, (Rule(ANY, NAME, terms=Terms(memory=theirs)),), held)
        resources = listing.settle(Inventory(devices), (rule,), held, 1.0)
        given = {slot.device for resource in resources for slot in resource.slots if slot.usable(ALL_HEALTHY)}
        assert given == {devices[0].id}
