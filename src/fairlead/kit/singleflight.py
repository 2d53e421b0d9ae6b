"""Work that several callers share: at most one run at a time, and each caller gets one that began after its call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class SingleFlight:
    """A run goes on without its callers. A result from before the call would be too old for the caller."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Raises what the work raises. Work that is cancelled lets its callers go, and does not cancel them."""
        if self._next is not None:  # it has not begun, also where the one before it has just ended
            task = self._next
        elif self._running is None or self._running.done():
            task = self._running = self._start(None)
        else:
            task = self._next = self._start(self._running)
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    def cancel(self) -> None:
        for task in (self._running, self._next):
            if task is not None:
                task.cancel()
        self._running = self._next = None

    def _start(self, before: asyncio.Task[None] | None) -> asyncio.Task[None]:
        task = asyncio.create_task(self._go(before))
        task.add_done_callback(_take)
        return task

    async def _go(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
            self._running, self._next = self._next, None
        await self._work()


def _take(task: asyncio.Task[None]) -> None:
    """The callers may all be gone."""
    if not task.cancelled():
        task.exception()
