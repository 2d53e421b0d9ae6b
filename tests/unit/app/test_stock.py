"""The ledger: what is kept back because a pod may hold it is looked after until the pod is gone."""

from __future__ import annotations

import pytest
from tests.clock import FakeClock

from fairlead.app.source import Source, Tempo
from fairlead.app.stock import Ledger, inventory_of
from fairlead.model.device import Device
from fairlead.model.health import Cause, CauseKind, Health
from fairlead.model.inventory import Findings, Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.policy import health
from fairlead.policy.rules import Match, Rule

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
