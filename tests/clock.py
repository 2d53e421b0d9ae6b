"""A clock that stands still until it is told to move on. Sleepers wake in the order of their times."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

START_S = 1_700_000_000.0  # wall time at the start
_ROUNDS = 10_000


class FakeClock:
    """Implements model.ports.Clock."""

    def __init__(self, start_s: float = START_S) -> None:
        self._start_s = start_s
        self._elapsed_s = 0.0
        self._ticket = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._dozed = asyncio.Event()

    def now(self) -> float:
        return self._start_s + self._elapsed_s

    def monotonic(self) -> float:
        return self._elapsed_s

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed_s + seconds, next(self._ticket), future))
        self._dozed.set()
        await future

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Callable[[], object]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: None if done.cancelled() else ring())
        heapq.heappush(self._sleepers, (self._elapsed_s + max(seconds, 0.0), next(self._ticket), future))
        self._dozed.set()
        return future.cancel

    @property
    def sleeping(self) -> int:
        """How many wait for a time to come."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def until_asleep(self, seconds: float) -> None:
        """Until somebody sleeps for that long or longer: for code that has to wait for a thread or a socket first."""
        while not any(due_s - self._elapsed_s >= seconds for due_s, _, future in self._sleepers if not future.done()):
            self._dozed.clear()
            await self._dozed.wait()

    async def advance(self, seconds: float) -> None:
        """Moves on, stopping at the time of each sleeper, so that all that follows from it happens at that time."""
        end_s = self._elapsed_s + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end_s:
            due_s, _, future = heapq.heappop(self._sleepers)
            if future.done():
                continue
            self._elapsed_s = max(self._elapsed_s, due_s)
            future.set_result(None)
            await settle()
        self._elapsed_s = end_s


async def settle() -> None:
    """Lets everything run that can run now. Threads and sockets are not waited for."""
    # The loop's own list of what is ready: exact, where a number of sleep(0) would be a guess.
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)
        if not ready:
            return
    raise AssertionError(f"something runs without end: still busy after {_ROUNDS} rounds of the loop")
