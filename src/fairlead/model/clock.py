"""The system's clock: the one place that reads it for the daemon."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    __slots__ = ()

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
