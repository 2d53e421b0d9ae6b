"""A supervised loop: work that goes on until it is cancelled, and is tried again after a failure, later each time.

Owns the order of trying, reporting and waiting. Time, chance and the report are given; what the work does, it does not
know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from fairlead.kit.backoff import FIRST_S, MOST_S, wait_s
from fairlead.kit.calls import explain
from fairlead.model.errors import FairleadError
from fairlead.model.ports import Clock, Record

if TYPE_CHECKING:
    from random import Random


class Ended(Exception):
    """Work that should never return has returned."""


class SupervisedLoop:
    """Calls `turn` again and again. Run it as a task; it ends only when that task is cancelled.

    A turn that raises has a problem: `report` gets it once, and an empty text when it is over. The next turn waits for
    the back-off. A turn that returns was a success; the text that it returns is a problem that waiting does not cure.
    `turn` may also be one endless run: with `steady_s` a return is a failure, and a problem is over when the run has
    lasted so long.

    `due`, where given, is awaited before each turn, and set again after a failure. An error that is not ours, a stray
    cancellation and a SystemExit are defects: each is recorded, and ends the turn but not the loop.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], Awaitable[str | None]],
        *,
        clock: Clock,
        rng: Random,
        report: Callable[[str], None],
        record: Record,
        due: asyncio.Event | None = None,
        steady_s: float | None = None,
        first_s: float = FIRST_S,
        most_s: float = MOST_S,
        describe: Callable[[BaseException], str] = explain,
    ) -> None:
        self._name, self._turn = name, turn
        self._clock, self._rng = clock, rng
        self._report, self._record, self._describe = report, record, describe
        self._due, self._steady_s = due, steady_s
        self._first_s, self._most_s = first_s, most_s
        self._problem = ""
        self._failures = 0

    async def run(self) -> None:
        while True:
            if self._due is not None:
                await self._due.wait()
                self._due.clear()
            began_s = self._clock.monotonic()
            try:
                problem = await self._take_turn()
            except GeneratorExit:  # the event loop is gone
                raise
            except BaseException as error:  # whatever it is, the next turn must not suffer for it
                if _is_own_cancellation(error):
                    raise
                if _is_cancelled():  # and the turn answered with an error of its own: a group of tasks may
                    self._record_defect(first_cause(error))
                    raise asyncio.CancelledError from error
                if self._steady_s is not None and self._clock.monotonic() - began_s >= self._steady_s:
                    self._failures = 0
                await self._back_off(first_cause(error))
            else:
                self._failures = 0
                self._say(problem or "")

    async def _take_turn(self) -> str | None:
        if self._steady_s is None:
            return await self._turn()
        stop_alarm = self._clock.alarm(self._steady_s, lambda: self._say(""))
        try:
            await self._turn()
        finally:
            stop_alarm()
        raise Ended("it has ended by itself")

    async def _back_off(self, cause: BaseException) -> None:
        self._record_defect(cause)
        self._say(self._describe(cause))
        asked_s: float = getattr(cause, "retry_after_s", 0.0)  # a server may ask for more patience
        pause_s = wait_s(self._failures, self._rng, asked_s=asked_s, first_s=self._first_s, most_s=self._most_s)
        self._failures += 1
        await self._clock.sleep(pause_s)
        if self._due is not None:
            self._due.set()

    def _record_defect(self, cause: BaseException) -> None:
        if not isinstance(cause, FairleadError):
            self._record("task-crashed", task=self._name, reason=explain(cause))

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._report(problem)


def first_cause(error: BaseException) -> BaseException:
    """What is behind a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _is_own_cancellation(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError) and _is_cancelled()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
