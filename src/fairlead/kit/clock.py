"""The system's clock: the one place that reads it for the daemon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class SystemClock:
    __slots__ = ()

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Callable[[], object]:
        return asyncio.get_running_loop().call_later(seconds, ring).cancel
