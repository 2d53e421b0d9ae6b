"""The ledger: what is kept back because a pod may hold it is looked after until the pod is gone."""

from __future__ import annotations

from fairlead.app.stock import Ledger
from fairlead.model.device import Device
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
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
