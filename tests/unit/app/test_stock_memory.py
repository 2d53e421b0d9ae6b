"""Units of memory over time: cards come and go, daemons restart, rules change, and what pods hold keeps its meaning."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.policy.cards import GIB, NAME, node

from fairlead.app.stock import Ledger
from fairlead.model.device import Device
from fairlead.model.inventory import Inventory
from fairlead.model.names import ResourceName, SlotId
from fairlead.model.resource import Resource
from fairlead.policy.memory import MIB, Share, read_id
from fairlead.policy.rules import ANY, Rule

AUTO = (Rule(ANY, NAME, memory=Share()),)
FINE = (Rule(ANY, NAME, memory=Share(MIB, grow=False)),)
Held = Mapping[ResourceName, frozenset[SlotId]]


def settle(
    ledger: Ledger, devices: tuple[Device, ...], rules: tuple[Rule, ...] = AUTO, held: Held | None = None, at: float = 0
) -> Resource:
    (resource,) = ledger.settle(Inventory(devices), rules, held if held is not None else {}, frozenset(), at)
    return resource


def offered(resource: Resource) -> set[str]:
    return {slot.id for slot in resource.slots if resource.usable(slot)}


def test_lost_cards_stay_listed_and_come_back_with_the_same_ids():
    """One card alone would have a finer unit. It keeps the one that it had among eight."""
    ledger, devices = Ledger(), node(*[80 * GIB] * 8)
    before = settle(ledger, devices)
    lost = settle(ledger, devices[:1], at=10)
    assert lost.unit_bytes == before.unit_bytes == 512 * MIB
    assert {slot.id for slot in lost.slots} == {slot.id for slot in before.slots}
    gone = settle(ledger, devices[:1], at=100)
    assert (gone.unit_bytes, len(gone.slots)) == (512 * MIB, 160)
    assert settle(ledger, devices, at=101).slots == before.slots
    assert settle(Ledger(), devices[:1]).unit_bytes == 64 * MIB


def test_a_new_daemon_goes_on_with_the_unit_that_pods_hold():
    """Seven cards alone would have a finer unit; then the ids of running pods would be somebody else's."""
    devices = node(*[80 * GIB] * 8)
    before = settle(Ledger(), devices)
    held = {NAME: frozenset(slot.id for slot in before.slots_of[devices[3].id][:100])}
    assert settle(Ledger(), devices[2:4]).unit_bytes < before.unit_bytes
    after = settle(Ledger(), devices[2:4], held=held)
    assert after.unit_bytes == before.unit_bytes
    assert held[NAME] <= offered(after)


def test_memory_held_in_another_unit_is_not_given_away_again():
    devices = node(16 * GIB, 16 * GIB)
    held = {NAME: frozenset(slot.id for slot in settle(Ledger(), devices).slots_of[devices[1].id][:10])}
    coarse = (Rule(ANY, NAME, memory=Share(GIB, grow=False)),)
    after = settle(Ledger(), devices, coarse, held)
    assert {slot.device for slot in after.slots if after.usable(slot)} == {devices[0].id}
    free = settle(Ledger(), devices, coarse, {NAME: frozenset()})
    assert len(offered(free)) == 32


def test_a_card_whose_memory_a_pod_holds_is_not_given_whole_to_another_and_the_other_way_round():
    devices = node(16 * GIB, 16 * GIB)
    piece = settle(Ledger(), devices).slots_of[devices[0].id][0].id
    whole = settle(Ledger(), devices, (Rule(ANY, NAME),), {NAME: frozenset({piece})})
    assert offered(whole) == {devices[1].id}
    shared = settle(Ledger(), devices, AUTO, {NAME: frozenset({SlotId(devices[0].id)})})
    assert {slot.device for slot in shared.slots if shared.usable(slot)} == {devices[1].id}


def test_a_changed_unit_lists_the_old_slots_until_they_are_free():
    ledger, devices = Ledger(), node(16 * GIB)
    before = settle(ledger, devices)
    coarse = (Rule(ANY, NAME, memory=Share(GIB, grow=False)),)
    after = settle(ledger, devices, coarse, at=1)
    units = {part.unit_bytes: part for slot in after.slots if (part := read_id(slot.id))}
    assert set(units) == {8 * MIB, GIB}
    assert {slot.id for slot in before.slots}.isdisjoint(offered(after))
    assert len(settle(ledger, devices, coarse, at=100).slots) == 16


def test_a_unit_that_is_refused_on_reload_leaves_the_old_one_in_force():
    ledger, devices = Ledger(), node(*[141 * GIB] * 8)
    before = settle(ledger, devices)
    after = settle(ledger, devices, FINE, at=1)
    assert after.slots == before.slots
    assert "Set memory.unit to" in ledger.problems[0]
    less = settle(ledger, devices[1:], FINE, at=2)
    assert {slot.device for slot in less.slots if slot.retired_s is None} == {device.id for device in devices[1:]}


def test_a_change_of_health_makes_no_slot_anew():
    ledger, devices = Ledger(), node(*[16 * GIB] * 2)
    before = settle(ledger, devices)
    views = before.order, before.slots_of
    after = settle(ledger, devices)
    assert after is not before
    assert all(one is other for one, other in zip(before.slots, after.slots, strict=True))
    assert (after.order, after.slots_of) == views
    assert after.order is views[0]


def test_memory_held_in_another_unit_is_not_given_away_while_the_kubelet_is_silent():
    devices = node(16 * GIB, 16 * GIB)
    held = {NAME: frozenset(slot.id for slot in settle(Ledger(), devices).slots_of[devices[1].id][:10])}
    coarse = (Rule(ANY, NAME, memory=Share(GIB, grow=False)),)
    ledger = Ledger()
    before = offered(settle(ledger, devices, coarse, held))
    assert len(before) == 16
    (silent,) = ledger.settle(Inventory(devices), coarse, None, frozenset(), 1.0)
    assert offered(silent) == before
    assert len(offered(settle(ledger, devices, coarse, {}, at=2))) == 32


def test_memory_held_under_ids_of_another_plugin_is_not_given_away_under_other_ids_or_another_name():
    devices, theirs = node(16 * GIB, 16 * GIB), Share(GIB, ids="fakeID---{index}---")
    held = {NAME: frozenset({SlotId("fakeID---1---0")})}
    for rule in (
        Rule(ANY, NAME, memory=Share(GIB)),
        Rule(ANY, ResourceName("example.com/other"), memory=theirs),
    ):
        ledger = Ledger()
        settle(ledger, devices, (Rule(ANY, NAME, memory=theirs),), held)
        resources = ledger.settle(Inventory(devices), (rule,), held, frozenset(), 1.0)
        given = {slot.device for resource in resources for slot in resource.slots if resource.usable(slot)}
        assert given == {devices[0].id}
