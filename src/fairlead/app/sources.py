"""All sources of a daemon, and how one set of them follows another without a gap.

A source that is replaced goes on speaking for its devices until every new one has scanned once: no device leaves the
list for a moment, and no container starts on the word of a backend that has not looked yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping
from functools import partial

from fairlead.app.calls import explain
from fairlead.app.source import Record, Source, Tempo
from fairlead.model.ports import Backend, Clock


class Sources:
    def __init__(self, clock: Clock, record: Record, on_change: Callable[[], None]) -> None:
        self._clock = clock
        self._record = record
        self._on_change = on_change
        self.live: dict[str, Source] = {}
        self._new: set[str] = set()  # live, but not heard of yet
        self._fading: dict[str, Source] = {}  # replaced, and still speaking
        self._tasks: dict[Source, asyncio.Task[None]] = {}
        self._handover: asyncio.Task[None] | None = None

    @property
    def speaking(self) -> Mapping[str, Source]:
        """Those whose word counts now, by the name that their devices carry."""
        if not self._new and not self._fading:  # nearly always, and Allocate asks
            return self.live
        return {**{name: source for name, source in self.live.items() if name not in self._new}, **self._fading}

    def start(
        self, backends: Mapping[str, Backend], tempo: Tempo, *, before: Mapping[str, Source] | None = None
    ) -> None:
        """`before`: the sources that these stand in for. What was wrong with a device stays known, whoever finds it."""
        before = before or {}
        tracks = {device: track for source in before.values() for device, track in source.tracks.items()}
        for name, backend in backends.items():
            source = Source(
                name, backend, tempo, self._clock, self._record, self._on_change, before=before.get(name), tracks=tracks
            )
            self.live[name] = source
            task = self._tasks[source] = asyncio.create_task(source.run(), name=f"source {name}")
            task.add_done_callback(partial(self._on_end, source))

    def _on_end(self, source: Source, task: asyncio.Task[None]) -> None:
        """A source ends when it is cancelled. Another end is a defect of ours, and must not pass in silence."""
        self._tasks.pop(source, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._record("task-crashed", task=task.get_name(), reason=explain(error))

    async def first_scans(self) -> None:
        """Of those that are live when they are over: a reload may replace one meanwhile."""
        while silent := [source for source in self.live.values() if not source.first_scan.is_set()]:
            await asyncio.gather(*(source.first_scan.wait() for source in silent))

    def swap(self, same: Container[str], opened: Mapping[str, Backend], tempo: Tempo) -> None:
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
        self.start(opened, tempo, before={**left, **self._fading})
        self._new |= opened.keys()
        if self._handover is not None:
            self._handover.cancel()
        self._handover = asyncio.create_task(self._hand_over(), name="hand over")

    async def _hand_over(self) -> None:
        await asyncio.gather(*(self.live[name].first_scan.wait() for name in self._new))
        self._new.clear()
        fading, self._fading = self._fading, {}
        for source in fading.values():
            self._end(source)
        self._on_change()

    def _end(self, source: Source) -> None:
        source.first_scan.set()  # nobody need wait for it any more
        self._tasks[source].cancel()

    async def stop(self) -> None:
        tasks = [*self._tasks.values(), *([self._handover] if self._handover else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
