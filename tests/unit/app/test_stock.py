"""The ledger: what is kept back because a pod may hold it is looked after until the pod is gone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clock import FakeClock

from fairlead.app import stock
from fairlead.app.source import Source, Tempo
from fairlead.app.stock import Ledger, inventory_of
from fairlead.model.device import Device
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import Findings, Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.policy import health
from fairlead.policy.rules import Assignment, Match, Rule, assign

GPU = ResourceName("example.com/gpu")


def test_a_device_kept_back_for_its_holder_is_looked_after():
    """A new daemon lists nothing that left, yet must learn when the pod of the old one has ended."""
    ledger = Ledger()
    rules, there = (Rule(Match(), GPU),), Inventory((Device(DeviceId("a")),))
    (resource,) = ledger.settle(there, rules, {GPU: frozenset({SlotId("a::1")})}, frozenset(), 0.0)
    assert [resource.usable(slot) for slot in resource.slots] == [False]
    assert ledger.waiting
    (resource,) = ledger.settle(there, rules, {}, frozenset(), 1000.0)
    assert [resource.usable(slot) for slot in resource.slots] == [True]
    assert not ledger.waiting


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
    assert inventory_of(parts[::turn]).condition(DeviceId("a")).health is Health.UNHEALTHY
    parts[0].tracks[DeviceId("a")] = health.Track()
    assert inventory_of(parts[::turn]).condition(DeviceId("a")).health is Health.HEALTHY


def test_a_resource_named_after_its_devices_goes_with_the_last_of_them():
    ledger = Ledger()
    rules = (Rule(Match(), ResourceName("example.com/mig-{profile}")),)

    def settle(now_s: float, *profiles: str) -> dict[str, int]:
        devices = tuple(Device(DeviceId(f"{p}-0"), attributes={"profile": p}) for p in profiles)
        return {r.name: len(r.slots) for r in ledger.settle(Inventory(devices), rules, {}, frozenset(), now_s)}

    assert settle(0.0, "1g", "2g") == {"example.com/mig-1g": 1, "example.com/mig-2g": 1}
    assert settle(1.0, "2g") == {"example.com/mig-1g": 1, "example.com/mig-2g": 1}  # it may be in use yet
    assert settle(1000.0, "2g") == {"example.com/mig-2g": 1}


class TestADeviceOfferedInTwoForms:
    WHOLE, SHARED = ResourceName("example.com/gpu"), ResourceName("example.com/gpu.shared")
    RULES = (Rule(Match(), WHOLE, also=(Rule(Match(), SHARED, replicas=2),)),)
    THERE = Inventory((Device(DeviceId("a")), Device(DeviceId("b"))))

    def settle(self, ledger: Ledger, held: dict[ResourceName, frozenset[SlotId]] | None, now_s: float) -> set[str]:
        resources = ledger.settle(self.THERE, self.RULES, held, frozenset(), now_s)
        return {slot.id for resource in resources for slot in resource.slots if resource.usable(slot)}

    def test_is_given_away_in_one_of_them(self):
        free = self.settle(Ledger(), {self.WHOLE: frozenset({SlotId("a")})}, 0.0)
        assert free == {"a", "b", "b::0", "b::1"}
        free = self.settle(Ledger(), {self.SHARED: frozenset({SlotId("a::1")})}, 0.0)
        assert free == {"a::0", "a::1", "b", "b::0", "b::1"}

    def test_is_kept_from_the_other_form_before_the_kubelet_shows_its_pod(self):
        ledger = Ledger()
        self.settle(ledger, {}, 0.0)
        ledger.claim(self.WHOLE, [SlotId("a")], 1.0)
        assert self.settle(ledger, {}, 2.0) == {"a", "b", "b::0", "b::1"}
        assert ledger.waiting
        assert len(self.settle(ledger, {}, 100.0)) == 6  # no pod came of it

    def test_is_kept_back_while_nobody_knows_who_holds_what(self):
        ledger = Ledger()
        assert self.settle(ledger, None, 0.0) == set()
        assert "not known who holds what" in ledger.problems[0]
        assert len(self.settle(ledger, {}, 1.0)) == 6

    def test_stays_with_its_holder_while_the_kubelet_does_not_answer(self):
        ledger = Ledger()
        self.settle(ledger, {self.WHOLE: frozenset({SlotId("a")})}, 0.0)
        assert self.settle(ledger, None, 1.0) == {"a", "b", "b::0", "b::1"}


def test_rules_are_asked_again_only_when_they_could_answer_otherwise(monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []

    def counted(inventory: Inventory, *args: Any) -> Assignment:
        asked.append(len(inventory.devices))
        return assign(inventory, *args)

    monkeypatch.setattr(stock, "assign", counted)
    ledger = Ledger()
    rules = (Rule(Match(), GPU),)
    devices = tuple(Device(DeviceId(one)) for one in "ab")
    ill = {DeviceId("a"): Condition(Health.UNHEALTHY)}
    (well,) = ledger.settle(Inventory(devices), rules, {}, frozenset(), 0.0)
    (fallen,) = ledger.settle(Inventory(devices, conditions=ill), rules, {}, frozenset(), 1.0)
    assert [well.usable(slot) for slot in well.slots] == [True, True]
    assert [fallen.usable(slot) for slot in fallen.slots] == [False, True]
    assert asked == [2]
    ledger.settle(Inventory(devices[:1]), rules, {}, frozenset(), 2.0)
    ledger.settle(Inventory(devices[:1]), (Rule(Match(), GPU, replicas=2),), {}, frozenset(), 3.0)
    assert asked == [2, 1, 1]
    twice = Inventory((*devices, devices[0]))
    for now_s in (4.0, 5.0):  # a device that is found twice is left out by the rules, each time
        ledger.settle(twice, rules, {}, frozenset(), now_s)
    assert asked == [2, 1, 1, 3, 3]
