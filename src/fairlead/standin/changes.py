"""Waiting for changes, and background tasks with an owner.

Owns waiting for a condition without polling, and the set of running tasks. Knows nothing about the kubelet.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")


class Changes:
    """Wakes those who wait for a condition each time something may have changed."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Event] = set()

    def notify(self) -> None:
        for waiter in self._waiters:
            waiter.set()

    async def wait_for(self, predicate: Callable[[], T], timeout_s: float) -> T:
        """The first true answer of `predicate`, which is asked again after every change."""
        changed = asyncio.Event()
        self._waiters.add(changed)
        try:
            async with asyncio.timeout(timeout_s):
                while not (answer := predicate()):
                    await changed.wait()
                    changed.clear()
                return answer
        finally:
            self._waiters.discard(changed)


class Tasks:
    """Background tasks with one owner. A task that breaks is reported when the owner stops."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._broken: list[Exception] = []

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._finished)
        return task

    async def cancel(self) -> None:
        """End every task, except the one that calls, and wait for it."""
        ending = self._running - {asyncio.current_task()}
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def take_broken(self) -> list[Exception]:
        broken, self._broken = self._broken, []
        return broken

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._broken.append(error)
