"""Every follower has its own cursor: none steals another's update, and a slow one skips to the newest."""

import asyncio
from collections.abc import AsyncIterator

from fairlead.kit.clock import SystemClock
from fairlead.kit.latest import Latest


async def settle() -> None:
    """Lets every task that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def collect(follower: AsyncIterator[int], into: list[int]) -> None:
    async for value in follower:
        into += [value]  # at once: the list is read while this runs


async def test_a_follower_sees_the_value_now_and_each_change() -> None:
    latest = Latest(1)
    seen: list[int] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(collect(latest.follow(), seen))
        await settle()
        latest.set(2)
        await settle()
        latest.set(3)
        await settle()
        latest.close()
    assert seen == [1, 2, 3]
    assert (latest.value, latest.version) == (3, 2)


async def test_values_in_between_coalesce() -> None:
    latest = Latest(1)
    seen: list[int] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(collect(latest.follow(), seen))
        await settle()
        for value in (2, 3, 4):
            latest.set(value)
        await settle()
        latest.close()
    assert seen == [1, 4]


async def test_no_follower_takes_the_update_of_another() -> None:
    latest = Latest(1)
    slow, fast = latest.follow(), latest.follow()
    assert await anext(slow) == await anext(fast) == 1
    latest.set(2)
    assert await anext(fast) == 2
    latest.set(3)
    assert await anext(fast) == 3
    assert await anext(slow) == 3
    await slow.aclose()  # type: ignore[attr-defined]  # an async generator behind the AsyncIterator
    await fast.aclose()  # type: ignore[attr-defined]  # as above


async def test_a_follower_that_goes_away_disturbs_no_other() -> None:
    latest = Latest(1)
    seen: list[int] = []
    lost: list[int] = []
    staying = asyncio.create_task(collect(latest.follow(), seen))
    leaving = asyncio.create_task(collect(latest.follow(), lost))
    await settle()
    leaving.cancel()
    await settle()
    latest.set(2)
    latest.close()
    await staying
    assert (seen, lost) == ([1, 2], [1])


async def test_closing_ends_followers_after_the_last_value_even_late_ones() -> None:
    latest = Latest(1)
    latest.set(2)
    latest.close()
    assert [value async for value in latest.follow()] == [2]


async def test_an_equal_value_is_still_an_update() -> None:
    latest = Latest(1)
    follower = latest.follow()
    await anext(follower)
    latest.set(1)
    assert await anext(follower) == 1
    await follower.aclose()  # type: ignore[attr-defined]  # as above


async def test_the_system_clock_runs_forward() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(0)
    assert clock.monotonic() >= before
    assert clock.now() > 1_600_000_000
