"""Whether a plugin still answers: one that has just moved to another socket is asked there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Failed
from fairlead.standin.conformance.timing import LoadAwareTimer


class Moving:
    """A plugin that stops to answer on its socket, and registers another one only after it was asked there."""

    def __init__(self, *, moves: bool) -> None:
        self.registrations = [object()]
        self.timer = LoadAwareTimer()
        self.timeouts = SimpleNamespace(call_s=0.01, wait_s=5.0)
        self.plugin = SimpleNamespace(alive=True, wait=self._wait)
        self._moves = moves

    async def _wait(self) -> None:
        if self._moves and len(self.registrations) == 1:
            self.registrations.append(object())
        await asyncio.Event().wait()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        async def ask(_method: str) -> Any:
            return SimpleNamespace(ok=len(self.registrations) > 1)

        yield SimpleNamespace(ask=ask)


async def test_a_plugin_that_moves_to_another_socket_is_unharmed():
    await Rig.unharmed(Moving(moves=True), "asked")  # type: ignore[arg-type]  # what it uses of a rig


async def test_one_that_stays_silent_is_not():
    with pytest.raises(Failed, match="asked: it no longer answers"):
        await Rig.unharmed(Moving(moves=False), "asked")  # type: ignore[arg-type]  # as above
