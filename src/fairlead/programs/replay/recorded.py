"""What an engine asks of the world, answered from records: the clock, the kubelet, sources, a scheduler's choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from fairlead.model import errors
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import AskRefused
from fairlead.model.health import Condition
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.observe import recording as rec
from fairlead.policy import health

SOURCES_MAX = 256  # each reload may open some
REMEMBERED_EDITS = 4096  # of backends, for a configuration under which other slots are granted


class NotRecorded(AskRefused):
    """What a backend would give was never recorded."""


class RecordedClock:
    now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        raise RuntimeError(f"a player does not wait, not even {seconds} s")

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Callable[[], object]:
        del seconds, ring
        return _stop


class RecordedHolders:
    """The kubelet's answers, as they were."""

    def __init__(self) -> None:
        self.asked_s = self.known_s = 0.0
        self.now_held: Mapping[ResourceName, frozenset[SlotId]] | None = None
        self._record: rec.Settled | None = None
        self._free: frozenset[tuple[ResourceName, SlotId]] = frozenset()

    def take(self, record: rec.Settled) -> None:
        self._record, self._free = record, frozenset(record.free)
        self.asked_s, self.known_s = record.asked_s, record.known_s
        if record.held is not UNSET:
            self.now_held = rec.sets(record.held)

    @property
    def held(self) -> Mapping[ResourceName, frozenset[SlotId]] | None:
        return self.now_held

    def on_disk(self) -> frozenset[ResourceName] | None:
        found = self._record.on_disk if self._record is not None else None
        return None if found is None or found is UNSET else frozenset(found)

    def listed(self, resource: ResourceName) -> frozenset[SlotId]:
        return frozenset(self._record.listed.get(resource, ())) if self._record is not None else frozenset()

    def is_free(self, resource: ResourceName, slot: Slot) -> bool:
        return (resource, slot.id) in self._free


class RecordedSource:
    """What the engine reads of a source."""

    prepare = wait_for = None
    remembered = False

    def __init__(self, name: str, memory: EditsMemory, *, probed: bool = True) -> None:
        self.name = name
        self.probed = probed
        self.findings = Findings()
        self.tracks: dict[DeviceId, health.Track] = {}
        self.heard: set[DeviceId] = set()  # since the last round of probes
        self._memory = memory

    @property
    def conditions(self) -> Mapping[DeviceId, Condition]:
        mine = (device.id for device in self.findings.devices)
        return {device: self.tracks[device].condition for device in mine if device in self.tracks}

    def edits(self, grant: Grant) -> Edits:
        return self._memory.of(self.name, grant)


class EditsMemory:
    """What backends gave. Where the very grant was never made: what they gave for the same devices."""

    def __init__(self) -> None:
        self._exact: dict[tuple[Any, ...], rec.Edited] = {}
        self._alike: dict[tuple[Any, ...], rec.Edited] = {}

    def remember(self, edits: Sequence[rec.Edited]) -> None:
        for edited in edits:
            self._exact[edited.source, edited.slots, edited.units] = edited
            self._alike[edited.source, edited.devices, edited.units] = edited
        for known in (self._exact, self._alike):
            while len(known) > REMEMBERED_EDITS:
                del known[next(iter(known))]

    def of(self, source: str, grant: Grant) -> Edits:
        devices = tuple(device.id for device in grant.devices)
        exact = self._exact.get((source, grant.slots, grant.units))
        found = exact or self._alike.get((source, devices, grant.units))
        if found is None:
            raise NotRecorded(f"granted; what {source} gives for these devices is not in the recording")
        if found.edits is None:
            raise _error(found.kind, found.error)
        return found.edits


class RecordedSources:
    def __init__(self) -> None:
        self.live: Mapping[str, RecordedSource] = {}
        self.order: tuple[str, ...] = ()
        self.memory = EditsMemory()
        self._known: dict[str, RecordedSource] = {}

    @property
    def speaking(self) -> Mapping[str, RecordedSource]:
        return {(source := self.of(key)).name: source for key in self.order}

    def of(self, key: str) -> RecordedSource:
        if key not in self._known:
            self._add(key, RecordedSource(key.partition("#")[0], self.memory))
        return self._known[key]

    def _add(self, key: str, source: RecordedSource) -> None:
        """Those that do not count any more make way."""
        self._known[key] = source
        past = [each for each in self._known if each not in self.order and each != key]
        for each in past[: max(0, len(self._known) - SOURCES_MAX)]:
            del self._known[each]

    def open(self, opened: rec.Opened) -> None:
        source = RecordedSource(opened.name, self.memory, probed=opened.probed)
        source.tracks.update(opened.tracks)
        self._add(opened.source, source)

    def take(self, found: rec.Found) -> None:
        source = self.of(found.source)
        source.findings = rec.findings_of(found)
        there = {device.id for device in found.devices}
        for device in there:
            track = source.tracks.get(device, health.Track(probed=source.probed))
            source.tracks[device] = track if track.probed == source.probed else replace(track, probed=source.probed)
        # As a source does: one that left ill is still ill when it comes back.
        for left in [each for each in source.tracks.keys() - there if health.is_well(source.tracks[each])]:
            del source.tracks[left]


class RecordedChoices:
    """What a scheduler had chosen, as it was told."""

    def __init__(self, devices: Callable[[], Mapping[DeviceId, Device]]) -> None:
        self.choices: list[rec.Choice] = []
        self.node_env: Mapping[str, str] = {}
        self._devices = devices

    def _next(self) -> rec.Choice:
        if not self.choices:
            raise AskRefused("the recording does not say what a scheduler had chosen")
        choice = self.choices.pop(0)
        if choice.error:
            raise _error(choice.kind, choice.error)
        return choice

    async def prefer(
        self, _resource: Resource, _available: Sequence[str], _must: Sequence[str], _size: int
    ) -> tuple[SlotId, ...]:
        return self._next().slots

    async def confirm(self, resource: Resource, _ids: Sequence[str]) -> Grant:
        choice, known = self._next(), self._devices()
        devices = tuple(known[device] for device in choice.devices if device in known)
        return Grant(resource.name, choice.slots, devices, choice.unit_bytes, choice.units, choice.variables)

    def forget(self, resource: Resource, ids: Sequence[str]) -> None:
        pass


def _error(kind: str, text: str) -> AskRefused:
    """The error that was raised, by its name and text."""
    made = getattr(errors, kind, AskRefused)
    known = made if isinstance(made, type) and issubclass(made, AskRefused) else AskRefused
    error = known.__new__(known)
    Exception.__init__(error, text)
    return error


def _stop() -> None:
    pass
