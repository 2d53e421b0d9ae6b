"""Waiting for the first of some things. Knows nothing of what they are."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from fairlead.model.ports import Clock

R = TypeVar("R")


async def sleep_unless(event: asyncio.Event, clock: Clock, seconds: float) -> bool:
    """Until the time is over or the event is set, and whether it is. An infinite time is for ever."""
    waits: set[asyncio.Future[Any]] = {asyncio.ensure_future(event.wait())}
    if seconds != math.inf:
        waits.add(asyncio.ensure_future(clock.sleep(seconds)))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Not awaited: a cancellation of our own that came just then would be taken for theirs.
        for wait in waits:
            wait.cancel()
    return event.is_set()


async def run_unless(event: asyncio.Event, work: Awaitable[R]) -> R | None:
    """The result; None if the event is set first. Work that hangs holds up nothing."""
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        ending.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Waits for the first of some coroutines and drops the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
