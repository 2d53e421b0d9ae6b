"""A sink that writes down what a backend reports."""

from __future__ import annotations

import asyncio

from fairlead.model.health import Cause
from fairlead.model.names import DeviceId


class Notes:
    """Implements model.ports.Sink."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, ...]] = []
        self.told = asyncio.Event()

    def fault(self, device: DeviceId, cause: Cause) -> None:
        self._write("fault", device, cause.code)

    def clear(self, device: DeviceId, code: str | None = None) -> None:
        self._write("clear", device, code or "*")

    def rescan(self) -> None:
        self._write("rescan")

    def take(self) -> list[tuple[str, ...]]:
        """What was told since the last time."""
        lines, self.lines = self.lines, []
        self.told.clear()
        return lines

    async def wait_for(self, *line: str) -> None:
        """Until that was told. The deadline only ends a test that has failed."""
        async with asyncio.timeout(10):
            while line not in self.lines:
                self.told.clear()
                await self.told.wait()

    def _write(self, *line: str) -> None:
        self.lines.append(line)
        self.told.set()
