"""Slots that stand for devices which a scheduler chose: whatever they are of, and both must be fit."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.fronts.deviceplugin.resources import broken, resource

from fairlead.engine.grants import grant_on
from fairlead.model.edits import Grant
from fairlead.model.errors import Elsewhere, UnfitSlots
from fairlead.model.inventory import ALL_HEALTHY, Conditions
from fairlead.model.names import DeviceId
from fairlead.model.resource import Resource
from fairlead.policy.pods.requests import share


def granted(
    given: Resource, ids: list[str], *devices: str, strict: bool = False, conditions: Conditions = ALL_HEALTHY
) -> Grant:
    return grant_on(
        given, conditions, ids, share(len(ids), [DeviceId(device) for device in devices]), {}, strict=strict
    )


def memory(**keys: Any) -> Resource:
    return resource(3, replicas=4, unit_bytes=1 << 30, **keys)


def test_the_container_gets_the_device_that_was_chosen_not_that_of_its_slots():
    grant = granted(memory(), ["d0::1", "d0::2"], "d2")
    assert ([device.id for device in grant.devices], grant.units) == (["d2"], (2,))
    assert grant.slots == ("d0::1", "d0::2")


def test_several_devices_share_the_amount():
    grant = granted(memory(), ["d0::0", "d0::1", "d0::2"], "d1", "d2")
    assert ([device.id for device in grant.devices], grant.units) == (["d1", "d2"], (2, 1))


def test_units_are_split_as_the_scheduler_wrote_it():
    shares = {DeviceId("d1"): 3, DeviceId("d2"): 1}
    grant = grant_on(memory(), ALL_HEALTHY, ["d1::0", "d1::1", "d2::0", "d2::1"], shares, {}, strict=False)
    assert ([device.id for device in grant.devices], grant.units) == (["d1", "d2"], (3, 1))


def test_where_it_is_strict_slots_of_another_device_are_refused():
    with pytest.raises(Elsewhere, match="d0"):
        granted(memory(), ["d0::0"], "d1", strict=True)


def test_a_chosen_device_that_failed_is_refused_with_its_cause():
    with pytest.raises(UnfitSlots, match=r"d1 .*xid-79"):
        granted(memory(), ["d0::0"], "d1", conditions=broken(1))


def test_slots_that_are_listed_as_unhealthy_are_refused_though_the_chosen_device_is_well():
    with pytest.raises(UnfitSlots, match=r"d0::0 .*xid-79"):
        granted(memory(), ["d0::0", "d1::0"], "d1", conditions=broken(0))
