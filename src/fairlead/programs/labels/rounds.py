"""Looks, labels, and looks again: the order of things in every labeller. What is read and where it goes are given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from fairlead.kit.waiting import run_unless, sleep_unless
from fairlead.model.ports import Clock
from fairlead.programs.labels.outputs import Output

NOTED_MAX = 1000
Note = Callable[[str], None]
Look = Callable[[], Awaitable[tuple[Mapping[str, str], Iterable[str]]]]


class Rounds:
    """What a look finds is written, and what is odd about it is said once."""

    def __init__(self, look: Look, output: Output, note: Note) -> None:
        self._look = look
        self._output = output
        self._note = note
        self._noted: set[str] = set()

    async def turn(self) -> None:
        labels, notes = await self._look()
        for text in notes:
            self.say_once(text)
        await self._output.write(labels)

    def say_once(self, text: str) -> None:
        if len(self._noted) >= NOTED_MAX:
            self._noted.clear()
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)


async def keep(
    turn: Callable[[], Awaitable[None]], clock: Clock, stop: asyncio.Event, *, interval_s: float, oneshot: bool
) -> None:
    """Until `stop` is set, or once. What hangs does not hold up the end."""
    while True:
        await run_unless(stop, turn())
        if oneshot or stop.is_set() or await sleep_unless(stop, clock, max(interval_s, 0.1)):
            return
