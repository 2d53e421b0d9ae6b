"""The engine: from sources to an inventory, from that to the resources that every front offers, and back from grants.

Owns what is known of devices and what is listed. Knows no kubelet and no cluster: who holds what comes through a port,
and the fronts take the resources from the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fairlead.engine.cordons import Cordons
from fairlead.engine.lastinventory import LastInventory
from fairlead.engine.listing import Listing
from fairlead.engine.source import Source
from fairlead.engine.sources import Sources, conditions_of, inventory_of
from fairlead.engine.unitfile import UnitFiles, boot_id
from fairlead.engine.unitreport import UnitReport
from fairlead.engine.units import Units
from fairlead.model.edits import Grant
from fairlead.model.health import Cause, Condition
from fairlead.model.inventory import ALL_HEALTHY, EMPTY, Findings
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.ports import Clock, Record
from fairlead.model.resource import Resource, Slot
from fairlead.policy.cordon import apply_cordons
from fairlead.policy.offering.rules import Rule

if TYPE_CHECKING:
    from fairlead.engine.cleanup import Cleaner, Holders


class HeldSlots(Protocol):
    """What the engine asks about slots that pods hold."""

    @property
    def asked_s(self) -> float:
        """When the kubelet was last asked."""
        ...

    @property
    def known_s(self) -> float:
        """The same, of the last time that it answered."""
        ...

    @property
    def held(self) -> Mapping[ResourceName, frozenset[SlotId]] | None:
        """None: not known."""
        ...

    def on_disk(self) -> frozenset[ResourceName] | None: ...

    def listed(self, resource: ResourceName) -> frozenset[SlotId]: ...

    def is_free(self, resource: ResourceName, slot: Slot) -> bool: ...


class Engine:
    """`note`: a problem by its topic, empty when it is over. `on_change`: the sources have something new to settle.

    `on_health`: only the condition of a device is another. Neither rules nor units nor what stays listed depend on it.
    `on_fault`: a backend reports a fault, whether or not it changes a condition. Probes are no reports.
    """

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        record: Record,
        note: Callable[[str, str], None],
        holders: HeldSlots,
        on_change: Callable[[], None],
        on_health: Callable[[], None],
        on_fault: Callable[[Cause], object] = lambda _cause: None,
    ) -> None:
        self._clock, self._note, self._holders, self._record = clock, note, holders, record
        self.sources = Sources(clock, record, on_change, on_health, on_fault, self._scanned)
        self.last: LastInventory | None = None  # see `recall`
        self.inventory = EMPTY
        self.conditions = ALL_HEALTHY
        self.resources: tuple[Resource, ...] = ()
        self.listing = Listing(Units(UnitFiles(directory), holders.on_disk, holders.listed))
        self._unit_report = UnitReport(record)
        self.cordons = Cordons(clock, record, note, on_health)
        # Usable, and kept from new pods for now: by a foreign process (see `app.audit`), or until they are clean.
        self.held_back: Mapping[DeviceId, Condition] = {}
        self.cleaner: Cleaner | None = None
        self.overlay: Mapping[DeviceId, Condition] = {}  # of these and the cordons, as last applied
        self.settled_s = 0.0

    def read_units(self) -> None:
        """The units that an earlier daemon offered."""
        self.listing.units.files.read()

    def recall(self, path: Path, backends: Mapping[str, Mapping[str, Any]], *, use: bool) -> Mapping[str, Findings]:
        """What an earlier daemon of this boot found, for `sources.start`. From now on, what scans find is kept there.

        `backends`: what the devices of each depend on. Not `use`: the backends have scanned already.
        """
        self.last = LastInventory(path, boot_id())
        self.last.configure(backends)
        if not use:
            for source in self.sources.live.values():
                if source.scanned_s is not None and not source.problem:
                    self._scanned(source)
            return {}
        usable, refused = self.last.take(self._clock.monotonic())
        for name, found in usable.items():
            self._record("inventory-recalled", backend=name, devices=len(found.devices))
        for name, reason in refused.items():
            self._record("inventory-not-recalled", backend=name, reason=reason)
        return usable

    def reconfigure(self, backends: Mapping[str, Mapping[str, Any]]) -> None:
        """After a reload: what is kept is kept for these backends."""
        if self.last is not None:
            self.last.configure(backends)

    def _scanned(self, source: Source) -> None:
        if self.last is not None:
            well = all(condition.health.usable for condition in source.conditions.values())
            self.last.note(source.name, source.findings, self._clock.monotonic(), well=well)
            self._note("inventory", self.last.problem)

    def keep_health(self) -> None:
        """For a daemon after this one: devices that are withdrawn now are not offered before a scan."""
        if self.last is not None and (ill := self.conditions.unhealthy):
            for name in {self.inventory.by_id[device].backend for device in ill}:
                self.last.note_ill(name)
            self._note("inventory", self.last.problem)

    def settle_health(self) -> None:
        found = conditions_of(self.sources.speaking.values(), self.inventory)
        unclean = self.cleaner.conditions if self.cleaner is not None else {}
        self.overlay = {**self.held_back, **unclean, **self.cordons.conditions}
        self.conditions = apply_cordons(found, self.inventory.devices, self.overlay)

    def settle(self, rules: tuple[Rule, ...], unsent: Mapping[ResourceName, Resource | None] | None = None) -> None:
        """What the rules make of the devices that are there now, and what must stay listed. `unsent`: see `Listing`."""
        self.inventory = inventory_of(self.sources.speaking.values(), self.inventory)
        self.settle_health()
        self.listing.units.asked_s = self._holders.asked_s
        # How long a slot has been gone, whatever is done to the wall clock.
        now_s = self.settled_s = self._clock.monotonic()
        holders = self._holders
        self.resources = self.listing.settle(
            self.inventory, rules, holders.held, now_s, holders.is_free, holders.known_s, unsent
        )
        self._note("rules", "; ".join(self.listing.problems))
        self._note("backends", self._overlaps())
        self._unit_report.update(self.listing)
        self._note("units", self.listing.units.files.save(now_s))  # before a front offers them

    def granted(self, resource: Resource, grant: Grant) -> bool:
        """Whether the resources must be settled at once: the next grant may be of the same device in its other form."""
        now_s = self._clock.monotonic()
        if self.cleaner is not None:
            self.cleaner.granted(resource, grant)
        self.listing.units.granted(resource.name, now_s)
        if self.listing.exclusive:
            self.listing.allocated(resource.name, grant.slots, now_s)
        return self.listing.exclusive

    def _overlaps(self) -> str:
        if len(self.sources.live) < 2:
            return ""
        from fairlead.engine.overlap import overlaps  # noqa: PLC0415 - most nodes have one backend

        offered = {match.device for match in self.listing.offering.matches if match.resource}
        return "; ".join(overlaps(self.sources.live.values(), offered))

    def open_cleaner(
        self, path: Path, rules: tuple[Rule, ...], holders: Holders, on_health: Callable[[], None]
    ) -> bool:
        """Whether these rules are the first that ask for a clean-up. `path`: keeps which devices are used."""
        if self.cleaner is not None or not any(rule.terms.cleanup for rule in rules):
            return False
        from fairlead.engine.cleanup import Cleaner  # noqa: PLC0415 - few nodes clean

        self.cleaner = Cleaner(self._clock, self._record, self._note, holders, lambda: self.resources, on_health)
        self.cleaner.open(path)
        return True

    async def clean(self, resource: Resource, grant: Grant) -> None:
        """Before a container starts on a device that another one has used. Raises NotClean."""
        if self.cleaner is not None:
            await self.cleaner.prepare(resource, grant.slots)

    def why_nothing(self, refused: Mapping[ResourceName, str]) -> str:
        from fairlead.engine.nothing import why_nothing  # noqa: PLC0415 - most nodes have devices

        return why_nothing(self.sources.speaking.values(), self.listing.offering, refused)
