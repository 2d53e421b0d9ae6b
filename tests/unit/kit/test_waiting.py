"""The first of two things ends a wait, and the other is let go."""

from __future__ import annotations

import asyncio
import math

from tests.clock import FakeClock

from fairlead.kit.waiting import run_unless, sleep_unless


async def test_a_sleep_ends_with_its_time_or_with_the_event():
    clock, event = FakeClock(), asyncio.Event()
    sleeping = asyncio.create_task(sleep_unless(event, clock, 5.0))
    await clock.advance(5.0)
    assert await sleeping is False
    endless = asyncio.create_task(sleep_unless(event, clock, math.inf))
    await clock.advance(1e6)
    assert not endless.done()
    event.set()
    assert await endless is True


async def test_work_gives_its_result_unless_the_event_comes_first():
    event, cancelled = asyncio.Event(), asyncio.Event()

    async def hang() -> int:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return 1

    async def answer() -> int:
        return 7

    assert await run_unless(event, answer()) == 7
    hanging = asyncio.create_task(run_unless(event, hang()))
    await asyncio.sleep(0)
    event.set()
    assert await hanging is None
    assert cancelled.is_set()
