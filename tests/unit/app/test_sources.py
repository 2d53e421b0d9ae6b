"""All sources together: how one set follows another, also before the first has spoken."""

from __future__ import annotations

import asyncio

from tests.clock import FakeClock

from fairlead.app.source import Tempo
from fairlead.app.sources import Sources
from fairlead.model.inventory import Findings


class Box:
    name = "box"

    def __init__(self) -> None:
        self.answers = asyncio.Event()

    async def discover(self) -> Findings:
        await self.answers.wait()
        return Findings()


async def test_the_first_scans_are_over_when_a_source_was_replaced_in_the_middle_of_its_own():
    sources = Sources(FakeClock(), lambda *_, **__: None, lambda: None)
    hangs, follows = Box(), Box()
    sources.start({"a": hangs}, Tempo())
    waiting = asyncio.create_task(sources.first_scans())
    await asyncio.sleep(0)
    sources.swap((), {"a": follows}, Tempo())
    await asyncio.sleep(0)
    assert not waiting.done()
    follows.answers.set()
    await asyncio.wait_for(waiting, 20)
    assert sources.live["a"].first_scan.is_set()
    await sources.stop()
