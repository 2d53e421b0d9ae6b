"""Time, as the stand-in sees it: a system clock and one that tests turn by hand.

Owns waiting and time limits. Knows nothing about the kubelet.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    def now(self) -> float:
        """Seconds on a line that never goes back."""

    async def sleep(self, delay_s: float) -> None:
        """Return when the clock has moved on by `delay_s`."""


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


class FakeClock:
    """A clock that stands still until `advance` is called."""

    def __init__(self, start_s: float = 1_000.0) -> None:
        self._now_s = start_s
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._watchers: list[Callable[[], None]] = []

    def now(self) -> float:
        return self._now_s

    async def sleep(self, delay_s: float) -> None:
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_s + delay_s, next(self._order), due))
        self._tell()
        await due

    def advance(self, delay_s: float) -> None:
        """Move on and wake everyone whose time has come."""
        self._now_s += delay_s
        while self._sleepers and self._sleepers[0][0] <= self._now_s:
            _, _, due = heapq.heappop(self._sleepers)
            if not due.done():
                due.set_result(None)
        self._tell()

    @property
    def sleepers(self) -> int:
        """How many tasks wait on this clock now."""
        return sum(1 for _, _, due in self._sleepers if not due.done())

    async def wait_for_sleepers(self, count: int = 1) -> None:
        """Return once at least `count` tasks wait on this clock: then it makes sense to advance it."""
        while self.sleepers < count:
            woken = asyncio.Event()
            self._watchers.append(woken.set)
            try:
                await woken.wait()
            finally:
                self._watchers.remove(woken.set)

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the clock moves or someone goes to sleep on it."""
        self._watchers.append(callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        self._watchers.remove(callback)

    def _tell(self) -> None:
        for callback in tuple(self._watchers):
            callback()


@dataclass(frozen=True, slots=True)
class Timings:
    """The kubelet's own limits, in seconds of the injected clock."""

    dial_s: float = 10.0
    grace_s: float = 300.0
    prestart_s: float = 30.0
    info_s: float = 1.0
    notify_s: float = 5.0
    # Between two attempts to create a container that cannot be created.
    retry_s: float = 10.0
    backoff_s: float = 0.5
    backoff_max_s: float = 122.0
    # The pause between connection attempts inside the dial window. Real time: the gRPC library keeps it.
    redial_s: float = 1.0


@asynccontextmanager
async def running(*work: Awaitable[Any]) -> AsyncIterator[tuple[asyncio.Future[Any], ...]]:
    """Tasks that are cancelled when the block ends, and have ended when it is left."""
    tasks = tuple(map(asyncio.ensure_future, work))
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def within(clock: Clock, limit_s: float, work: Coroutine[object, object, T]) -> T:
    """The result of `work`, or TimeoutError once `clock` has moved on by `limit_s`."""
    async with running(work, clock.sleep(limit_s)) as (task, timer):
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError
        result: T = task.result()
        return result
