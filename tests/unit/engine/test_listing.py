"""The listing: what is kept back because a pod may hold it is looked after until the pod is gone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clock import FakeClock

from fairlead.engine import listing as stock
from fairlead.engine.listing import Listing
from fairlead.engine.source import Source, Tempo
from fairlead.engine.sources import conditions_of, inventory_of
from fairlead.model.device import Device
from fairlead.model.health import Cause, CauseKind, Health
from fairlead.model.inventory import ALL_HEALTHY, Findings, Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.policy import health
from fairlead.policy.offering.rules import Offering, Rule, Selector, make_offering

GPU = ResourceName("example.com/gpu")


def test_a_device_kept_back_for_its_holder_is_looked_after():
    """A new daemon lists nothing that left, yet must learn when the pod of the old one has ended."""
    listing = Listing()
    rules, there = (Rule(Selector(), GPU),), Inventory((Device(DeviceId("a")),))
    (resource,) = listing.settle(there, rules, {GPU: frozenset({SlotId("a::1")})}, 0.0)
    assert [slot.usable(ALL_HEALTHY) for slot in resource.slots] == [False]
    assert listing.waiting
    (resource,) = listing.settle(there, rules, {}, 1000.0)
    assert [slot.usable(ALL_HEALTHY) for slot in resource.slots] == [True]
    assert not listing.waiting


class Shelf:
    name = "shelf"

    def __init__(self, *ids: str) -> None:
        self.ids = ids

    async def discover(self) -> Findings:
        return Findings(tuple(Device(DeviceId(one)) for one in self.ids))


@pytest.mark.parametrize("turn", [1, -1])
async def test_a_source_speaks_for_its_own_devices_only(turn: int):
    """After a reload each new source remembers the faults of all; only one of them finds the device and heals it."""
    sick = health.fault(health.Track(), Cause("ecc", CauseKind.PERMANENT), 0.0)
    known = {DeviceId("a"): sick}
    parts = [
        Source(name, Shelf(name), Tempo(), FakeClock(), lambda *_args, **_keys: None, lambda: None, tracks=known)
        for name in "ab"
    ]
    for source in parts:
        await source.scan()
    assert conditions_of(parts[::turn], inventory_of(parts)).of(DeviceId("a")).health is Health.UNHEALTHY
    parts[0].tracks[DeviceId("a")] = health.Track()
    assert conditions_of(parts[::turn], inventory_of(parts)).of(DeviceId("a")).health is Health.HEALTHY


def test_a_resource_named_after_its_devices_goes_with_the_last_of_them():
    listing = Listing()
    rules = (Rule(Selector(), ResourceName("example.com/mig-{profile}")),)

    def settle(now_s: float, *profiles: str) -> dict[str, int]:
        devices = tuple(Device(DeviceId(f"{p}-0"), attributes={"profile": p}) for p in profiles)
        return {r.name: len(r.slots) for r in listing.settle(Inventory(devices), rules, {}, now_s)}

    assert settle(0.0, "1g", "2g") == {"example.com/mig-1g": 1, "example.com/mig-2g": 1}
    assert settle(1.0, "2g") == {"example.com/mig-1g": 1, "example.com/mig-2g": 1}  # it may be in use yet
    assert settle(1000.0, "2g") == {"example.com/mig-2g": 1}


class TestADeviceOfferedInTwoForms:
    WHOLE, SHARED = ResourceName("example.com/gpu"), ResourceName("example.com/gpu.shared")
    RULES = (Rule(Selector(), WHOLE, also=(Rule(Selector(), SHARED, replicas=2),)),)
    THERE = Inventory((Device(DeviceId("a")), Device(DeviceId("b"))))

    def settle(self, listing: Listing, held: dict[ResourceName, frozenset[SlotId]] | None, now_s: float) -> set[str]:
        resources = listing.settle(self.THERE, self.RULES, held, now_s)
        return {slot.id for resource in resources for slot in resource.slots if slot.usable(ALL_HEALTHY)}

    def test_is_given_away_in_one_of_them(self):
        free = self.settle(Listing(), {self.WHOLE: frozenset({SlotId("a")})}, 0.0)
        assert free == {"a", "b", "b::0", "b::1"}
        free = self.settle(Listing(), {self.SHARED: frozenset({SlotId("a::1")})}, 0.0)
        assert free == {"a::0", "a::1", "b", "b::0", "b::1"}

    def test_is_kept_from_the_other_form_before_the_kubelet_shows_its_pod(self):
        listing = Listing()
        self.settle(listing, {}, 0.0)
        listing.allocated(self.WHOLE, [SlotId("a")], 1.0)
        assert self.settle(listing, {}, 2.0) == {"a", "b", "b::0", "b::1"}
        assert listing.waiting
        assert len(self.settle(listing, {}, 100.0)) == 6  # no pod came of it

    def test_is_kept_back_while_nobody_knows_who_holds_what(self):
        listing = Listing()
        assert self.settle(listing, None, 0.0) == set()
        assert "not known who holds what" in listing.problems[0]
        assert len(self.settle(listing, {}, 1.0)) == 6

    def test_stays_with_its_holder_while_the_kubelet_does_not_answer(self):
        listing = Listing()
        self.settle(listing, {self.WHOLE: frozenset({SlotId("a")})}, 0.0)
        assert self.settle(listing, None, 1.0) == {"a", "b", "b::0", "b::1"}


def test_rules_are_asked_again_only_when_they_could_answer_otherwise(monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []

    def counted(inventory: Inventory, *args: Any) -> Offering:
        asked.append(len(inventory.devices))
        return make_offering(inventory, *args)

    monkeypatch.setattr(stock, "make_offering", counted)
    listing = Listing()
    rules = (Rule(Selector(), GPU),)
    devices = tuple(Device(DeviceId(one)) for one in "ab")
    (first,) = listing.settle(Inventory(devices), rules, {}, 0.0)
    (second,) = listing.settle(Inventory(devices), rules, {}, 1.0)
    assert first is second
    assert asked == [2]
    listing.settle(Inventory(devices[:1]), rules, {}, 2.0)
    listing.settle(Inventory(devices[:1]), (Rule(Selector(), GPU, replicas=2),), {}, 3.0)
    assert asked == [2, 1, 1]
    twice = Inventory((*devices, devices[0]))
    for now_s in (4.0, 5.0):
        (resource,) = listing.settle(twice, rules, {}, now_s)
        assert [slot.id for slot in resource.slots if slot.usable(ALL_HEALTHY)] == ["a", "b"]
    assert asked == [2, 1, 1, 3]
