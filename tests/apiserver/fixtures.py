"""A fake API server for each test, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.cluster.credentials import StaticToken
from fairlead.kit.clock import SystemClock
from tests.apiserver.server import ApiServer
from tests.apiserver.trouble import TroubledServer, troubled_server
from tests.clock import FakeClock


@pytest.fixture
async def server() -> AsyncIterator[TroubledServer]:
    async with troubled_server() as server:
        yield server


class Quick(FakeClock):
    """Time passes as fast as somebody sleeps, and the sleeps are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self._elapsed_s += seconds


@pytest.fixture
def quick() -> Quick:
    return Quick()


@pytest.fixture
async def client(server: ApiServer, quick: Quick) -> AsyncIterator[Client]:
    """Waits between tries take no time."""
    client = Client(
        Access(parse_server(server.url), credentials=StaticToken("s3cret")), quick, rng=Random(1), attempt_s=5.0
    )
    yield client
    await client.close()


@pytest.fixture
async def patient(server: ApiServer) -> AsyncIterator[Client]:
    """With a true clock, for what waits for sockets."""
    client = Client(Access(parse_server(server.url), credentials=StaticToken("s3cret")), SystemClock(), rng=Random(1))
    yield client
    await client.close()
