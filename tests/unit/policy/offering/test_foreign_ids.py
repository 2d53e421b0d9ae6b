"""Memory under another plugin's ids: the list is that plugin's, unit and size and all, and fits on every day."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.policy.placement.cards import GIB, NAME, card

from fairlead.fronts.deviceplugin.encoding import encode_devices
from fairlead.model.health import Condition, Health
from fairlead.model.inventory import ALL_HEALTHY, Conditions, Inventory
from fairlead.model.resource import MemoryTerms, Resource, Terms
from fairlead.policy.offering import budget
from fairlead.policy.offering.listbytes import list_bytes, worst_bytes
from fairlead.policy.offering.memory import MIB
from fairlead.policy.offering.rules import ANY, Rule, make_offering
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import decode

MINI, GPUSHARE, VOLCANO = "fakeID---{index}---", "{id}-_-", "{index}-"
LIMIT = budget.KUBELET_MESSAGE_MAX_BYTES


def ill(resource: Resource, count: int) -> Conditions:
    return Conditions({device.id: Condition(Health.UNHEALTHY) for device in resource.inventory.devices[:count]})


def offer(ids: str, count: int, gib: int) -> Resource:
    cards = [replace(card(number, gib * GIB), index=str(number), numa_nodes=(number % 2,)) for number in range(count)]
    (resource,) = make_offering(
        Inventory(tuple(cards)), [Rule(ANY, NAME, terms=Terms(memory=MemoryTerms(ids=ids)))]
    ).resources
    return resource


@pytest.mark.parametrize(
    ("ids", "count", "gib", "unit_mib", "recorded_bytes"),
    [
        (MINI, 1, 80, 1, 2_528_410),
        (MINI, 2, 80, 128, None),
        (VOLCANO, 8, 24, 1, 3_843_280),  # theirs is as large, and the kubelet takes it
        (VOLCANO, 8, 80, 512, None),
        (GPUSHARE, 1, 80, 64, None),
    ],
)
def test_the_unit_grows_only_where_their_list_would_not_fit(ids, count, gib, unit_mib, recorded_bytes):
    resource = offer(ids, count, gib)
    assert resource.unit_bytes == unit_mib * MIB
    if recorded_bytes is not None:
        assert len(encode_devices(resource, ALL_HEALTHY).frame) == recorded_bytes


@pytest.mark.parametrize("sick", [0, 8])
def test_a_full_list_fits_whatever_is_wrong_with_the_devices(sick: int):
    resource = offer(VOLCANO, 8, 24)
    data = encode_devices(resource, ill(resource, sick)).frame
    assert len(data) == list_bytes(resource, ill(resource, sick)) <= worst_bytes(resource) <= LIMIT
    budget.check(resource)
    assert data.count(b"Healthy") == (8 - sick) * 24 * 1024


def test_a_list_with_room_says_unhealthy_in_the_usual_word():
    resource = offer(MINI, 1, 4)
    listed = decode(dp.ListAndWatchResponse, encode_devices(resource, ill(resource, 1)).frame)
    assert {device.health for device in listed.devices} == {dp.UNHEALTHY}


def test_nothing_is_said_of_numa_nodes():
    """Whoever chose the device did not ask; the kubelet would choose another for them."""
    listed = decode(dp.ListAndWatchResponse, encode_devices(offer(VOLCANO, 2, 1), ALL_HEALTHY).frame).devices
    assert not any(device.topology for device in listed)
