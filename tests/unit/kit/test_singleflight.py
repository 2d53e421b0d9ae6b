"""Callers share work, and none gets a result from before its call."""

from __future__ import annotations

import asyncio

from tests.clock import settle

from fairlead.kit.singleflight import SingleFlight


class Work:
    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.go = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> None:
        self.begun += 1
        await self.go.wait()
        self.ended += 1
        if self.error is not None:
            raise self.error


async def test_later_callers_share_the_next_run():
    work = Work()
    shared = SingleFlight(work)
    first = asyncio.create_task(shared.run())
    await settle()
    others = [asyncio.create_task(shared.run()) for _ in range(5)]
    await settle()
    assert work.begun == 1
    work.go.set()
    await asyncio.gather(first, *others)
    assert (work.begun, work.ended) == (2, 2)
    await shared.run()
    assert work.ended == 3


async def test_every_caller_hears_of_an_error_and_the_next_run_is_tried():
    work = Work()
    work.error = ValueError("no")
    work.go.set()
    shared = SingleFlight(work)
    errors = await asyncio.gather(*(shared.run() for _ in range(3)), return_exceptions=True)
    assert [str(error) for error in errors] == ["no"] * 3
    work.error = None
    await shared.run()


async def test_a_caller_that_leaves_takes_nothing_from_the_others():
    work = Work()
    shared = SingleFlight(work)
    first, second = (asyncio.create_task(shared.run()) for _ in range(2))
    await settle()
    first.cancel()
    await settle()
    work.go.set()
    await second
    assert work.ended == 2


async def test_cancelled_work_lets_its_callers_go():
    shared = SingleFlight(Work())
    callers = [asyncio.create_task(shared.run()) for _ in range(2)]
    await settle()
    shared.cancel()
    await asyncio.gather(*callers)  # they are not cancelled with it


async def test_one_runs_at_a_time_also_for_those_who_come_between_two_runs():
    gates: list[asyncio.Event] = []
    running = most = 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        gates.append(asyncio.Event())
        try:
            await gates[-1].wait()
        finally:
            running -= 1

    shared = SingleFlight(work)
    callers = [asyncio.create_task(shared.run())]
    await settle()
    callers.append(asyncio.create_task(shared.run()))
    await asyncio.sleep(0)
    gates[0].set()
    for _ in range(6):
        callers.append(asyncio.create_task(shared.run()))
        await asyncio.sleep(0)
    shared.cancel()
    await settle()
    assert (most, running) == (1, 0)
    await asyncio.gather(*callers)
