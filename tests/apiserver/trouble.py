"""An API server with trouble that no answer shows: watches that stay silent, and a process that is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.apiserver.server import ApiServer, Request


class TroubledServer(ApiServer):
    def __init__(self) -> None:
        self._stalled = False
        self._marks = True
        self._asked = asyncio.Event()
        self._awake = asyncio.Event()
        self._awake.set()
        super().__init__()

    @property
    def stalled(self) -> bool:
        """Whether watches are taken and kept open, and bring neither events nor bookmarks."""
        return self._stalled

    @stalled.setter
    def stalled(self, stalled: bool) -> None:
        self._stalled = stalled
        self._mute()

    @property
    def bookmarks(self) -> bool:
        return self._marks and not self.store.muted

    @bookmarks.setter
    def bookmarks(self, bookmarks: bool) -> None:
        self._marks = bookmarks

    def freeze(self) -> None:
        """As a stopped process: connections are made and kept, and nothing is answered."""
        self._awake.clear()
        self._mute()

    def thaw(self) -> None:
        self._awake.set()
        self._mute()

    async def asked(self, number: int) -> None:
        """Until there were so many requests."""
        while len(self.requests) < number:
            self._asked.clear()
            await self._asked.wait()

    def reads(self, plural: str) -> int:
        """How many lists were asked for."""
        return sum(one.path.endswith(f"/{plural}") and "watch" not in one.query for one in self.requests)

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        self._asked.set()
        await self._awake.wait()
        return await super()._answer(request, writer)

    def _mute(self) -> None:
        self.store.muted = self._stalled or not self._awake.is_set()
        self.store.wake()


@asynccontextmanager
async def troubled_server() -> AsyncIterator[TroubledServer]:
    server = TroubledServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
