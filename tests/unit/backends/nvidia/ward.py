"""An nvidia backend whose GPUs fail and are reset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.clock import FakeClock
from tests.nvml import Node
from tests.unit.backends.nvidia.drivers import opened

from fairlead.backends.nvidia import NvidiaBackend
from fairlead.engine.source import Source, Tempo
from fairlead.model.health import Health
from fairlead.model.names import DeviceId


class Ward:
    """An engine's source on the simulated driver, whose rounds a test takes one by one."""

    def __init__(self, backend: NvidiaBackend) -> None:
        self.backend = backend
        self.clock = FakeClock()
        self.facts: list[str] = []
        self._stirred = asyncio.Event()
        self.source = Source("nvidia", backend, Tempo(), self.clock, self._record, self._stirred.set)

    def _record(self, kind: str, **_keys: Any) -> None:
        self.facts.append(kind)

    def health(self, device: str) -> Health:
        return self.source.tracks[DeviceId(device)].condition.health

    async def until(self, device: str, health: Health) -> None:
        async with asyncio.timeout(10):
            while device not in self.source.tracks or self.health(device) is not health:
                self._stirred.clear()
                await self._stirred.wait()

    async def pass_time(self, rounds: int = 12) -> None:
        """Hours, with a round of probes now and then."""
        for _ in range(rounds):
            await self.clock.advance(600)
            await self.source.pulse()


@asynccontextmanager
async def ward(node: Node, **more: Any) -> AsyncIterator[Ward]:
    async with opened(node, **more) as backend:
        ward = Ward(backend)
        await ward.source.scan()
        watch = asyncio.create_task(backend.watch(ward.source))
        try:
            yield ward
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
