"""Allocate with units of memory: everything follows from the ids; what straddles or outgrows a pod is refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.policy.placement.cards import GIB, node, shared

from fairlead.engine.grants import make_grant
from fairlead.fronts.deviceplugin.encoding import encode_devices, make_device_list, with_conditions
from fairlead.model.errors import BadAsk, Oversize, Straddles
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import ALL_HEALTHY, Conditions
from fairlead.model.resource import MemoryTerms, Resource, Terms
from fairlead.policy.offering import budget
from fairlead.policy.offering.memory import MIB

BROKEN = Condition(Health.UNHEALTHY, Cause("xid-79", CauseKind.PERMANENT, "fallen off the bus"), 5.0)
UNITS = MemoryTerms(GIB, grow=False)


def ill(resource: Resource, *devices: int) -> Conditions:
    return Conditions({resource.inventory.devices[number].id: BROKEN for number in devices})


@settings(deadline=None)
@given(st.integers(1, 16), st.randoms())
def test_the_grant_follows_from_the_ids_in_any_order(count: int, rng: random.Random):
    resource = shared(node(16 * GIB, 24 * GIB), UNITS)
    device = resource.inventory.devices[rng.randint(0, 1)]
    ids = [slot.id for slot in rng.sample(resource.slots_of[device.id], count)]
    grant = make_grant(resource, ALL_HEALTHY, ids)
    assert (grant.devices, grant.units, grant.unit_bytes) == ((device,), (count,), GIB)
    assert grant == make_grant(resource, ALL_HEALTHY, ids[::-1])
    assert sorted(grant.slots) == sorted(ids)


def test_a_set_that_straddles_devices_is_refused_with_the_reason_unless_allowed():
    resource = shared(node(16 * GIB, 24 * GIB), UNITS)
    ids = [slot.id for slot in resource.slots[13:18]]
    with pytest.raises(Straddles, match=r"GPU-\S+ \(3\), GPU-\S+ \(2\).*memory\.straddle"):
        make_grant(resource, ALL_HEALTHY, ids)
    allowed = Terms(memory=replace(UNITS, straddle=True))
    assert make_grant(replace(resource, terms=allowed), ALL_HEALTHY, ids).units == (3, 2)


def test_a_container_may_not_outgrow_its_pod():
    resource = shared(node(16 * GIB), MemoryTerms(MIB), per_container=100)
    ids = [slot.id for slot in resource.slots]
    assert make_grant(resource, ALL_HEALTHY, ids[:100]).units == (100,)
    with pytest.raises(BadAsk, match=r"100 of it, not 101: the pod's status holds every id.*larger memory\.unit"):
        make_grant(resource, ALL_HEALTHY, ids[:101])


def test_a_fault_encodes_the_slots_of_its_own_device_only(monkeypatch: pytest.MonkeyPatch):
    resource = shared(node(*[16 * GIB] * 4), UNITS)
    first = make_device_list(resource, ALL_HEALTHY)
    checked: list[Resource] = []
    monkeypatch.setattr(budget, "check", checked.append)
    sick = with_conditions(first, ill(resource, 2))
    assert sick.frame == encode_devices(resource, ill(resource, 2)).frame != first.frame
    kept = [name for name, part in sick.parts.items() if part is first.parts[name]]
    assert kept == [device.id for number, device in enumerate(resource.inventory.devices) if number != 2]
    assert with_conditions(sick, ALL_HEALTHY).frame == first.frame
    assert checked == []  # a list that fitted on its worst day fits today


def test_a_list_that_grew_is_measured_again():
    small, large = (
        shared(node(*[16 * GIB] * 4), MemoryTerms(2 * MIB, grow=False)),
        shared(node(*[141 * GIB] * 8), UNITS),
    )
    grown = replace(large, slots=(*large.slots, *(small.slots * 5)))
    with pytest.raises(Oversize, match="slots of an earlier unit are still listed"):
        make_device_list(grown, ALL_HEALTHY)


@settings(deadline=None)
@given(st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=6), st.integers(0, 3))
def test_a_list_made_of_old_parts_is_the_list_made_anew(sick: list[set[int]], gone: int):
    resource = shared(node(*[4 * GIB] * 4), UNITS)
    lost = resource.inventory.devices[gone].id
    withheld = tuple(replace(slot, withheld=True) if slot.device == lost else slot for slot in resource.slots)
    for listed in (resource, replace(resource, slots=withheld)):
        device_list = make_device_list(listed, ALL_HEALTHY)
        for ailing in sick:
            now = ill(resource, *ailing)
            device_list = with_conditions(device_list, now)
            assert device_list == encode_devices(listed, now)
