"""What the journal says of units and long lists: once each, and again when it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairlead.app.stock import Ledger
from fairlead.model.names import ResourceName
from fairlead.policy.stall import Stall, explain_stall, stalls


class UnitsTold:
    def __init__(self, record: Callable[..., None]) -> None:
        self._record = record
        self._grown: Mapping[ResourceName, tuple[int, int, str]] = {}
        self._kept: Mapping[ResourceName, tuple[int, int, str]] = {}
        self._long: Mapping[ResourceName, Stall] = {}

    def tell(self, ledger: Ledger) -> None:
        grown, kept = ledger.grown, ledger.kept
        for name, (asked, unit, why) in grown.items():
            if self._grown.get(name, ())[:2] != (asked, unit):
                self._record("unit-grown", resource=name, from_mib=asked >> 20, to_mib=unit >> 20, reason=why)
        for name, (unit, wish, why) in kept.items():
            if self._kept.get(name, ())[:2] != (unit, wish):
                self._record("unit-kept", resource=name, from_mib=wish >> 20, to_mib=unit >> 20, reason=why)
        self._grown, self._kept = grown, kept
        self._tell_stalls(ledger)

    def _tell_stalls(self, ledger: Ledger) -> None:
        """Lists that keep the kubelet busy for long when pods hold all of them."""
        resources = {made.name: made for made in ledger.assignment.resources}
        long = {name: stall for name, stall in stalls(resources.values()).items() if stall.long}
        for name, stall in long.items():
            if self._long.get(name) != stall:
                why = explain_stall(stall, memory=bool(resources[name].unit_bytes))
                told = {"slots": stall.slots, "seconds": round(stall.seconds, 1), "reason": why}
                self._record("list-costly", resource=name, **told)
        self._long = long
