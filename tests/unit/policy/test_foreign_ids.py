"""Memory under another plugin's ids: the list is that plugin's, unit and size and all, and fits on every day."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.policy.cards import GIB, NAME, card

from fairlead.kubelet.frames import device_list
from fairlead.model.health import Condition, Health
from fairlead.model.inventory import Inventory
from fairlead.model.resource import Resource
from fairlead.policy import budget
from fairlead.policy.memory import MIB, Share
from fairlead.policy.rules import ANY, Rule, assign
from fairlead.policy.size import list_bytes, worst_bytes
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import decode

MINI, GPUSHARE, VOLCANO = "fakeID---{index}---", "{id}-_-", "{index}-"
LIMIT = budget.KUBELET_MESSAGE_MAX_BYTES


def offer(ids: str, count: int, gib: int, *, sick: int = 0) -> Resource:
    cards = [replace(card(number, gib * GIB), index=str(number), numa_nodes=(number % 2,)) for number in range(count)]
    ill = {device.id: Condition(Health.UNHEALTHY) for device in cards[:sick]}
    inventory = Inventory(tuple(cards), conditions=ill)
    (resource,) = assign(inventory, [Rule(ANY, NAME, memory=Share(ids=ids))]).resources
    return resource


@pytest.mark.parametrize(
    ("ids", "count", "gib", "unit_mib", "recorded_bytes"),
    [
        (MINI, 1, 80, 1, 2_528_410),
        (MINI, 2, 80, 2, None),
        (VOLCANO, 8, 24, 1, 3_843_280),  # theirs is as large, and the kubelet takes it
        (VOLCANO, 8, 80, 4, None),
        (GPUSHARE, 1, 80, 2, None),
    ],
)
def test_the_unit_grows_only_where_their_list_would_not_fit(ids, count, gib, unit_mib, recorded_bytes):
    resource = offer(ids, count, gib)
    assert resource.unit_bytes == unit_mib * MIB
    if recorded_bytes is not None:
        assert len(device_list(resource)) == recorded_bytes


@pytest.mark.parametrize("sick", [0, 8])
def test_a_full_list_fits_whatever_is_wrong_with_the_devices(sick: int):
    resource = offer(VOLCANO, 8, 24, sick=sick)
    data = device_list(resource)
    assert len(data) == list_bytes(resource) <= worst_bytes(resource) <= LIMIT
    budget.check(resource)
    assert data.count(b"Healthy") == (8 - sick) * 24 * 1024


def test_a_list_with_room_says_unhealthy_in_the_usual_word():
    resource = offer(MINI, 1, 4, sick=1)
    assert {device.health for device in decode(dp.ListAndWatchResponse, device_list(resource)).devices} == {
        dp.UNHEALTHY
    }


def test_nothing_is_said_of_numa_nodes():
    """Whoever chose the device did not ask; the kubelet would choose another for them."""
    listed = decode(dp.ListAndWatchResponse, device_list(offer(VOLCANO, 2, 1))).devices
    assert not any(device.topology for device in listed)
