import asyncio

import pytest

from fairlead.standin.changes import Changes, Tasks
from fairlead.standin.clock import FakeClock, within


async def test_a_sleeper_wakes_when_the_clock_has_moved_far_enough() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(10))
    await clock.wait_for_sleepers()
    clock.advance(9.9)
    assert clock.sleepers == 1
    clock.advance(0.1)
    await task
    assert clock.sleepers == 0


async def test_work_in_time_gives_its_result() -> None:
    async def work() -> int:
        return 7

    clock = FakeClock()
    assert await within(clock, 1, work()) == 7
    assert clock.sleepers == 0


async def test_work_that_is_late_is_cancelled() -> None:
    clock = FakeClock()
    forever = asyncio.Event()
    task = asyncio.create_task(within(clock, 10, forever.wait()))
    await clock.wait_for_sleepers()
    clock.advance(10)
    with pytest.raises(TimeoutError):
        await task


async def test_waiting_asks_again_after_each_change() -> None:
    changes = Changes()
    seen: list[int] = []

    def ready() -> bool:
        seen.append(len(seen))
        return len(seen) == 3

    waiting = asyncio.create_task(changes.wait_for(ready, timeout_s=10))
    while not waiting.done():
        await asyncio.sleep(0)
        changes.notify()
    assert seen == [0, 1, 2]


async def test_a_broken_task_is_kept_for_its_owner() -> None:
    async def work() -> None:
        raise LookupError("lost")

    tasks = Tasks()
    await asyncio.wait({tasks.spawn(work(), "work")})
    assert [str(error) for error in tasks.take_broken()] == ["lost"]
    assert tasks.take_broken() == []
