"""Reloads: one after the other, beside the loop, and each with an end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from tests.clock import FakeClock, settle

from fairlead.app.reload import DEADLINE_S, Reloads
from fairlead.config.load import Loaded, parse
from fairlead.model.errors import ConfigError

GOOD = parse("backends: [{kind: sim}]\nrules: [{resource: example.com/gpu}]", "f.yaml")


class Desk:
    """What is read, and what became of it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.answer: Loaded | Exception = GOOD
        self.threads: list[str] = []
        self.reading = threading.Event()
        self.may_end = threading.Event()
        self.may_end.set()
        self.adopted: list[Loaded] = []
        self.refused: list[str] = []
        self.reloads = Reloads(self._read, self._adopt, self.refused.append, self.clock)

    def _read(self) -> Loaded:
        self.threads.append(threading.current_thread().name)
        self.reading.set()
        assert self.may_end.wait(30)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def _adopt(self, new: Loaded) -> None:
        self.adopted.append(new)

    async def over(self) -> None:
        while self.reloads.task is not None:
            await asyncio.wait({self.reloads.task})


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    yield desk
    desk.may_end.set()
    await desk.reloads.stop()


async def test_a_file_is_read_beside_the_loop(desk: Desk) -> None:
    desk.reloads.ask()
    await desk.over()
    assert desk.adopted == [GOOD]
    assert threading.current_thread().name not in desk.threads


@pytest.mark.parametrize("error", [ConfigError("f.yaml", ["line 3: no"]), RecursionError("deep"), MemoryError()])
async def test_a_file_that_cannot_be_used_is_refused_in_words(desk: Desk, error: Exception) -> None:
    desk.answer = error
    desk.reloads.ask()
    await desk.over()
    assert not desk.adopted
    assert len(desk.refused) == 1
    desk.answer = GOOD
    desk.reloads.ask()
    await desk.over()
    assert desk.adopted == [GOOD]


async def test_changes_during_a_reload_become_one_more(desk: Desk) -> None:
    desk.may_end.clear()
    desk.reloads.ask()
    await asyncio.to_thread(desk.reading.wait)
    for _ in range(5):
        desk.reloads.ask()
    desk.may_end.set()
    await desk.over()
    assert len(desk.threads) == len(desk.adopted) == 2


async def test_a_read_that_hangs_is_refused_and_never_doubled(desk: Desk) -> None:
    desk.may_end.clear()
    desk.reloads.ask()
    await asyncio.to_thread(desk.reading.wait)
    await desk.clock.advance(DEADLINE_S)
    assert "reading the configuration has not answered for 30 s" in desk.refused[0]
    desk.reloads.ask()
    await settle()
    assert len(desk.refused) == 2
    assert len(desk.threads) == 1


async def test_without_a_file_there_is_nothing_to_read() -> None:
    reloads = Reloads(None, lambda _: asyncio.sleep(0), print, FakeClock())
    reloads.ask()
    assert reloads.task is None
