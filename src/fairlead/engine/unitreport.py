"""What the journal says of units and long lists: once each, and again when it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairlead.engine.listing import Listing
from fairlead.model.names import ResourceName
from fairlead.policy.offering.stall import Stall, explain_stall, stalls


class UnitReport:
    def __init__(self, record: Callable[..., None]) -> None:
        self._record = record
        self._grown: Mapping[ResourceName, tuple[int, int, str]] = {}
        self._kept: Mapping[ResourceName, tuple[int, int, str]] = {}
        self._long: Mapping[ResourceName, Stall] = {}

    def update(self, listing: Listing) -> None:
        grown, kept = listing.enlarged_units, listing.kept_units
        for name, (asked, unit, why) in grown.items():
            if self._grown.get(name, ())[:2] != (asked, unit):
                self._record("unit-grown", resource=name, from_mib=asked >> 20, to_mib=unit >> 20, reason=why)
        for name, (unit, wanted, why) in kept.items():
            if self._kept.get(name, ())[:2] != (unit, wanted):
                self._record("unit-kept", resource=name, from_mib=wanted >> 20, to_mib=unit >> 20, reason=why)
        self._grown, self._kept = grown, kept
        self._report_stalls(listing)

    def _report_stalls(self, listing: Listing) -> None:
        """Lists that keep the kubelet busy for long when pods hold all of them."""
        resources = {made.name: made for made in listing.offering.resources}
        long = {name: stall for name, stall in stalls(resources.values()).items() if stall.long}
        for name, stall in long.items():
            if self._long.get(name) != stall:
                why = explain_stall(stall, memory=bool(resources[name].unit_bytes))
                seconds = round(stall.seconds, 1)
                self._record("list-costly", resource=name, slots=stall.slots, seconds=seconds, reason=why)
        self._long = long
