"""Items that fall due, in order of time, on an injected clock. Knows nothing of what they are."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

from fairlead.kit.waiting import sleep_unless
from fairlead.model.ports import Clock

T = TypeVar("T")


class TimerQueue(Generic[T]):
    __slots__ = ("_added", "_clock", "_due", "_ticket")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, T]] = []
        self._ticket = count()  # equal times keep their order
        self._added = asyncio.Event()

    def put(self, delay_s: float, item: T) -> None:
        heapq.heappush(self._due, (self._clock.monotonic() + delay_s, next(self._ticket), item))
        self._added.set()

    def drop(self, unwanted: Callable[[T], bool]) -> None:
        self._due = [entry for entry in self._due if not unwanted(entry[2])]
        heapq.heapify(self._due)

    async def run(self, act: Callable[[T], None]) -> None:
        """Hands each item over when it is due. Runs until cancelled; items not yet due wait for the next run."""
        while True:
            self._added.clear()
            while self._due and self._due[0][0] <= self._clock.monotonic():
                act(heapq.heappop(self._due)[2])
            if not self._due:
                await self._added.wait()
            elif not self._added.is_set():
                await sleep_unless(self._added, self._clock, self._due[0][0] - self._clock.monotonic())
