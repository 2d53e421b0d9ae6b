"""Allocate with units of memory: everything follows from the ids; what straddles or outgrows a pod is refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.policy.cards import GIB, node, shared

from fairlead.kubelet.frames import device_list
from fairlead.kubelet.service import make_grant, make_offer
from fairlead.model.errors import BadAsk, Oversize, Straddles
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import Inventory
from fairlead.model.resource import Resource
from fairlead.policy import budget
from fairlead.policy.memory import MIB, Share

BROKEN = Condition(Health.UNHEALTHY, Cause("xid-79", CauseKind.PERMANENT, "fallen off the bus"), 5.0)
UNITS = Share(GIB, grow=False)


def ill(resource: Resource, *devices: int) -> Resource:
    found = resource.inventory.devices
    inventory = Inventory(found, conditions={found[number].id: BROKEN for number in devices})
    return replace(resource, inventory=inventory).follow(resource)


@settings(deadline=None)
@given(st.integers(1, 16), st.randoms())
def test_the_grant_follows_from_the_ids_in_any_order(count: int, rng: random.Random):
    resource = shared(node(16 * GIB, 24 * GIB), UNITS)
    device = resource.inventory.devices[rng.randint(0, 1)]
    ids = [slot.id for slot in rng.sample(resource.slots_of[device.id], count)]
    grant = make_grant(resource, ids)
    assert (grant.devices, grant.units, grant.unit_bytes) == ((device,), (count,), GIB)
    assert grant == make_grant(resource, ids[::-1])
    assert sorted(grant.slots) == sorted(ids)


def test_a_set_that_straddles_devices_is_refused_with_the_reason_unless_allowed():
    resource = shared(node(16 * GIB, 24 * GIB), UNITS)
    ids = [slot.id for slot in resource.slots[13:18]]
    with pytest.raises(Straddles, match=r"GPU-\S+ \(3\), GPU-\S+ \(2\).*memory\.straddle"):
        make_grant(resource, ids)
    assert make_grant(replace(resource, straddle=True), ids).units == (3, 2)


def test_a_container_may_not_outgrow_its_pod():
    resource = shared(node(16 * GIB), Share(MIB), per_container=100)
    ids = [slot.id for slot in resource.slots]
    assert make_grant(resource, ids[:100]).units == (100,)
    with pytest.raises(BadAsk, match=r"100 of it, not 101: the pod's status holds every id.*larger memory\.unit"):
        make_grant(resource, ids[:101])


def test_a_fault_encodes_the_slots_of_its_own_device_only(monkeypatch: pytest.MonkeyPatch):
    resource = shared(node(*[16 * GIB] * 4), UNITS)
    first = make_offer(resource)
    checked: list[Resource] = []
    monkeypatch.setattr(budget, "check", checked.append)
    sick = make_offer(ill(resource, 2), first)
    assert sick.frame == device_list(ill(resource, 2)) != first.frame
    kept = [name for name, piece in sick.pieces.items() if piece is first.pieces[name]]
    assert kept == [device.id for number, device in enumerate(resource.inventory.devices) if number != 2]
    assert make_offer(resource, sick).frame == first.frame
    assert checked == []  # a list that fitted on its worst day fits today


def test_a_list_that_grew_is_measured_again():
    small, large = shared(node(*[16 * GIB] * 4), Share(2 * MIB, grow=False)), shared(node(*[141 * GIB] * 8), UNITS)
    grown = replace(large, slots=(*large.slots, *(small.slots * 5)))
    with pytest.raises(Oversize, match="slots of an earlier unit are still listed"):
        make_offer(grown, make_offer(large))


@settings(deadline=None)
@given(st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=6), st.integers(0, 3))
def test_a_list_made_of_old_pieces_is_the_list_made_anew(sick: list[set[int]], gone: int):
    resource = shared(node(*[4 * GIB] * 4), UNITS)
    offer = make_offer(resource)
    for number, ailing in enumerate(sick):
        now = ill(resource, *ailing)
        if number % 2:
            lost = resource.inventory.devices[gone].id
            slots = tuple(replace(slot, withheld=True) if slot.device == lost else slot for slot in now.slots)
            now = replace(now, slots=slots)
        offer = make_offer(now, offer)
        assert offer.frame == device_list(now)
