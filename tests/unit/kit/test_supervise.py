"""A supervised loop: tried again, later each time; says its problem once; ends only when its task is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from tests.clock import FakeClock

from fairlead.kit.backoff import FIRST_S, MOST_S
from fairlead.kit.supervise import SupervisedLoop
from fairlead.model.errors import FairleadError

STEADY_S = 10.0


class Highest(Random):
    """No chance: always the longest wait."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


class Stage:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.reports: list[str] = []
        self.facts: list[tuple[str, dict[str, Any]]] = []
        self.turns_s: list[float] = []  # when each turn began

    @asynccontextmanager
    async def running(
        self, turn: Callable[[], Awaitable[str | None]], **more: Any
    ) -> AsyncIterator[asyncio.Task[None]]:
        async def noted() -> str | None:
            self.turns_s.append(self.clock.monotonic())
            return await turn()

        loop = SupervisedLoop(
            "work",
            noted,
            clock=self.clock,
            rng=Highest(),
            report=self.reports.append,
            record=lambda kind, **keys: self.facts.append((kind, keys)),
            **more,
        )
        task = asyncio.create_task(loop.run())
        try:
            await self.clock.advance(0)
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def failing(*errors: BaseException | str) -> Callable[[], Awaitable[str | None]]:
    """One turn for each, and then a turn that lasts."""
    left = list(errors)

    async def turn() -> str | None:
        if not left:
            await asyncio.Event().wait()
        first = left.pop(0)
        if isinstance(first, BaseException):
            raise first
        return first

    return turn


async def test_each_failure_makes_the_next_wait_longer_up_to_a_limit(stage: Stage):
    async with stage.running(failing(*(FairleadError("away") for _ in range(20)))):
        await stage.clock.advance(1000.0)
    waits = [after - before for before, after in zip(stage.turns_s, stage.turns_s[1:], strict=False)]
    assert waits[:4] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
    assert waits[-1] == MOST_S


async def test_a_problem_is_reported_once_and_once_more_when_it_is_over(stage: Stage):
    away = FairleadError("the server is away")
    async with stage.running(failing(away, away, away, "", "")):
        await stage.clock.advance(60.0)
    assert stage.reports == ["the server is away", ""]
    assert stage.facts == []  # an error of ours is no defect


async def test_a_success_ends_the_back_off(stage: Stage):
    away = FairleadError("away")
    async with stage.running(failing(away, away, away, "", away, "")):
        await stage.clock.advance(60.0)
    assert stage.turns_s[5] - stage.turns_s[4] == FIRST_S


async def test_a_problem_that_waiting_does_not_cure_is_reported_and_not_tried_again(stage: Stage):
    due = asyncio.Event()
    due.set()
    async with stage.running(failing("there is no such node"), due=due):
        await stage.clock.advance(600.0)
    assert stage.reports == ["there is no such node"]
    assert len(stage.turns_s) == 1


async def test_work_that_is_due_waits_for_it_and_is_due_again_after_a_failure(stage: Stage):
    due = asyncio.Event()
    async with stage.running(failing(FairleadError("away"), ""), due=due):
        await stage.clock.advance(5.0)
        assert stage.turns_s == []
        due.set()
        await stage.clock.advance(60.0)
        assert stage.turns_s == [5.0, 5.0 + FIRST_S]


async def test_a_server_that_asks_for_patience_gets_it(stage: Stage):
    asked = FairleadError("too many requests")
    asked.retry_after_s = 7.0  # type: ignore[attr-defined]  # as the cluster's errors have it
    async with stage.running(failing(asked, "")):
        await stage.clock.advance(60.0)
    assert stage.turns_s[1] == 7.0 + FIRST_S


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("gone"), "KeyError: 'gone'"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (asyncio.CancelledError("stray"), "CancelledError: stray"),
        (ExceptionGroup("several", [KeyError("gone")]), "KeyError: 'gone'"),
    ],
)
async def test_a_defect_is_recorded_and_the_work_goes_on(stage: Stage, error: BaseException, reason: str):
    async with stage.running(failing(error)) as task:
        await stage.clock.advance(60.0)
        assert not task.done()
    assert stage.facts == [("task-crashed", {"task": "work", "reason": reason})]
    assert len(stage.turns_s) == 2


@pytest.mark.parametrize("moment", ["in a turn", "in the back-off", "while nothing is due"])
async def test_its_own_cancellation_ends_it(stage: Stage, moment: str):
    due = asyncio.Event()
    if moment != "while nothing is due":
        due.set()
    turn = failing(FairleadError("away")) if moment == "in the back-off" else failing()
    async with stage.running(turn, due=due) as task:
        task.cancel()
        await stage.clock.advance(0)
        assert task.cancelled()
    assert stage.facts == []


@pytest.mark.parametrize("error", [KeyError("gone"), FairleadError("away")])
async def test_a_turn_that_answers_its_cancellation_with_an_error_does_not_go_on(stage: Stage, error: Exception):
    async def part() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise error

    async def turn() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(part())

    async with stage.running(turn) as task:
        task.cancel()
        await stage.clock.advance(60.0)
        assert task.cancelled()
    reasons = [keys["reason"] for _, keys in stage.facts]
    assert reasons == (
        [] if isinstance(error, FairleadError) else ["KeyError: 'gone'"]
    )  # an error of ours is no defect
    assert len(stage.turns_s) == 1


async def test_an_endless_run_that_returns_has_failed(stage: Stage):
    async with stage.running(failing(""), steady_s=STEADY_S):
        await stage.clock.advance(FIRST_S)
    assert stage.reports == ["Ended: it has ended by itself"]
    assert len(stage.turns_s) == 2


async def test_an_endless_run_is_over_its_problem_when_it_has_lasted(stage: Stage):
    async with stage.running(failing(FairleadError("away")), steady_s=STEADY_S):
        await stage.clock.advance(FIRST_S + STEADY_S - 0.1)
        assert stage.reports == ["away"]
        await stage.clock.advance(0.1)
        assert stage.reports == ["away", ""]
