"""All sources of a daemon, and how one set of them follows another without a gap.

A source that is replaced goes on speaking for its devices until every new one has scanned once: no device leaves the
list for a moment, and no container starts on the word of a backend that has not looked yet. A new one speaks as soon as
it has scanned: it does not wait for another that hangs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial

from fairlead.engine.source import Source, Tempo
from fairlead.engine.tap import Tap
from fairlead.kit.calls import explain
from fairlead.kit.waiting import first_of
from fairlead.model.health import Cause
from fairlead.model.inventory import EMPTY, NO_LINKS, Conditions, Findings, Inventory, Links
from fairlead.model.names import DeviceId
from fairlead.model.ports import Backend, Clock, Record
from fairlead.policy.health import Track, is_well

EARLY_S = 0.25  # a first scan that is as quick as this is waited for, also where devices are remembered


class Sources:
    def __init__(
        self,
        clock: Clock,
        record: Record,
        on_change: Callable[[], None],
        on_health: Callable[[], None],
        on_fault: Callable[[Cause], object] = lambda _cause: None,
        on_scan: Callable[[Source], None] = lambda _source: None,
    ) -> None:
        self._clock = clock
        self._record = record
        self._on_change = on_change
        self._on_health = on_health
        self._on_fault = on_fault
        self._on_scan = on_scan
        self.tap: Tap | None = None  # for the sources that are started from now on
        self.live: dict[str, Source] = {}
        self._new: set[str] = set()  # live, but not heard of yet
        self._fading: dict[str, Source] = {}  # replaced, and still speaking
        self._tasks: dict[Source, asyncio.Task[None]] = {}
        self._ended: dict[str, Source] = {}  # by the last hand-over
        self._handover: asyncio.Task[None] | None = None

    @property
    def speaking(self) -> Mapping[str, Source]:
        """Those whose word counts now, by the name that their devices carry."""
        if not self._new and not self._fading:  # nearly always
            return self.live
        heard = {name: it for name, it in self.live.items() if name not in self._new or it.first_scan.is_set()}
        return {**heard, **self._fading}

    @property
    def editing(self) -> Mapping[str, Source]:
        """Those that say what a container gets. A list may still name devices of one that has just ended."""
        return {**self._ended, **self.speaking} if self._ended or self._new or self._fading else self.live

    def start(
        self,
        backends: Mapping[str, Backend],
        tempo: Tempo,
        *,
        before: Mapping[str, Source] | None = None,
        remembered: Mapping[str, Findings] | None = None,
    ) -> None:
        """`before`: the sources that these stand in for. What was wrong with a device stays known.

        `remembered`: what an earlier process found, by backend. See `Source`.
        """
        before, remembered = before or {}, remembered or {}
        tracks = {device: track for source in before.values() for device, track in source.tracks.items()}
        for name, backend in backends.items():
            source = Source(
                name,
                backend,
                tempo,
                self._clock,
                self._record,
                self._on_change,
                on_health=self._on_health,
                on_fault=self._on_fault,
                before=before.get(name),
                tracks=tracks,
                remembered=remembered.get(name),
                on_scan=self._on_scan,
                tap=self.tap,
            )
            self.live[name] = source
            task = self._tasks[source] = asyncio.create_task(source.run(), name=f"source {name}")
            task.add_done_callback(partial(self._on_end, source))

    def _on_end(self, source: Source, task: asyncio.Task[None]) -> None:
        """A source ends when it is cancelled. Another end is a defect of ours, and must not pass in silence."""
        self._tasks.pop(source, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._record("task-crashed", task=task.get_name(), reason=explain(error))

    @property
    def silent(self) -> list[Source]:
        """Those that have not answered yet."""
        return [source for source in self.live.values() if not source.first_scan.is_set()]

    @property
    def shown(self) -> list[Source]:
        """Those whose word counts, and those that have said nothing yet."""
        speaking = list(self.speaking.values())
        return [*speaking, *(source for source in self.silent if source not in speaking)]

    async def first_scans(self, patience_s: float = math.inf) -> None:
        """Until each has answered once; when patience is over, until one has found something.

        Of those that are live then: a reload may replace one meanwhile. For one whose devices are remembered, patience
        ends early.
        """
        began_s = self._clock.monotonic()
        while silent := self.silent:
            early = all(source.remembered for source in silent)
            left_s = began_s + (min(EARLY_S, patience_s) if early else patience_s) - self._clock.monotonic()
            if left_s <= 0 and any(source.findings.devices for source in self.live.values()):
                return
            waits = [source.first_scan.wait() for source in silent]
            await first_of(*waits, *([self._clock.sleep(left_s)] if 0 < left_s < math.inf else []))

    def replace(self, same: Container[str], opened: Mapping[str, Backend], tempo: Tempo) -> None:
        """Those in `same` run on at the new pace; the others make way for those that were opened."""
        left = {name: source for name, source in self.live.items() if name not in same}
        for source in self.live.values():
            source.tempo = tempo
        for name, source in left.items():
            del self.live[name]
            if name in self._new:  # replaced before it said anything
                self._new.discard(name)
                self._end(source)
            else:
                self._fading[name] = source
        self._ended = {}
        self.start(opened, tempo, before={**left, **self._fading})
        self._new |= opened.keys()
        if self._handover is not None:
            self._handover.cancel()
        self._handover = asyncio.create_task(self._hand_over(), name="hand over")

    async def _hand_over(self) -> None:
        await asyncio.gather(*(self.live[name].first_scan.wait() for name in self._new))
        self._new.clear()
        self._ended, self._fading = self._fading, {}
        for source in self._ended.values():
            self._end(source)
        self._on_change()

    def _end(self, source: Source) -> None:
        source.first_scan.set()  # a waiter must not wait for it any longer
        self._tasks[source].cancel()

    @property
    def ailing(self) -> Mapping[DeviceId, Track]:
        """What is known of devices that are not well."""
        return {
            device: track
            for source in self.speaking.values()
            for device, track in source.tracks.items()
            if not is_well(track)
        }

    def inherit(self, tracks: Mapping[DeviceId, Track]) -> None:
        """What another daemon knew of devices that are not well. A new process is no cure."""
        for source in self.live.values():
            source.inherit(tracks)

    async def stop(self) -> None:
        tasks = [*self._tasks.values(), *([self._handover] if self._handover else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def inventory_of(sources: Iterable[Source], before: Inventory = EMPTY) -> Inventory:
    """All that they have found, as one inventory.

    An id that two of them give is the device of the one that gave it first, and else of the first one: what stands
    behind an id that a pod holds must not change because another backend answers again.
    """
    parts = list(sources)
    links: Links = NO_LINKS
    owners: dict[DeviceId, str] = {}
    for source in parts:
        links |= source.findings.links
        for device in source.findings.devices:
            was = before.by_id.get(device.id)
            if device.id not in owners or (was is not None and was.backend == source.name):
                owners[device.id] = source.name
    found = (device for source in parts for device in source.findings.devices if owners[device.id] == source.name)
    return Inventory(tuple(found), links)


def conditions_of(sources: Iterable[Source], inventory: Inventory) -> Conditions:
    """Each by the source that the device is from."""
    by_id = inventory.by_id
    return Conditions(
        {
            device: found
            for source in sources
            for device, found in source.conditions.items()
            if device in by_id and by_id[device].backend == source.name
        }
    )
