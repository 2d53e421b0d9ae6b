"""The loop of labels: it ends when it is told to, whatever hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.clock import FakeClock

from fairlead.programs.labels import loop
from fairlead.programs.labels.catalogue import Facts


class Kept:
    """An output that never ends its writing, if told so."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.hangs = hangs
        self.begun = asyncio.Event()
        self.withdrawn = False

    async def write(self, labels: Mapping[str, str]) -> None:
        self.begun.set()
        if self.hangs:
            await asyncio.Event().wait()

    async def withdraw(self) -> None:
        self.withdrawn = True


def settings() -> loop.Settings:
    made = loop.read_settings(["--use-node-feature-api=false", "--device-discovery-strategy=vfio"], {})
    assert isinstance(made, loop.Settings)
    return made


@pytest.mark.parametrize("what", ["driver", "output"])
async def test_what_hangs_does_not_hold_up_the_end(what: str, monkeypatch: pytest.MonkeyPatch):
    output, stop = Kept(hangs=what == "output"), asyncio.Event()

    async def snapshot(self: Any) -> Facts:
        output.begun.set()
        if what == "driver":
            await asyncio.Event().wait()
        return Facts()

    monkeypatch.setattr(loop.Reader, "facts", snapshot)
    work = asyncio.create_task(loop.run(settings(), output, FakeClock(), stop, lambda _: None))
    await asyncio.wait_for(output.begun.wait(), 20)
    stop.set()
    await asyncio.wait_for(work, 20)
    assert output.withdrawn
