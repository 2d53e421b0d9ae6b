"""Those who look at a node all the time: a Prometheus, a kubelet's probes, a browser with the page open, a visitor.

Owns what they ask, how often, and what a right answer is. Knows nothing of faults. All of them live in simulated time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from typing import Any
from urllib.parse import quote

from fairlead.kit.owner import Owner
from tests.campaign.node import Node
from tests.campaign.variants import AMD, LOW, NVIDIA, ODD

SCRAPE_S, PROBE_S, VISIT_S = 15.0, 10.0, 300.0
RETRY_S = 2.0  # as the stream asks of a browser
PROBES = {"/healthz": {200}, "/readyz": {200, 503}}
FILES = ("/", "/page.css", "/page.js", "/words.js", "/mark.svg")
LINE_MAX_BYTES = 1 << 22  # a document is one line

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class CountedOwner(Owner):
    """Knows how many answers its thread owes: simulated time must not run away from real work."""

    owed = 0  # by all of them

    async def call(self, *args: Any, **keys: Any) -> Any:
        CountedOwner.owed += 1
        try:
            return await super().call(*args, **keys)
        finally:
            CountedOwner.owed -= 1


class Watchers:
    def __init__(self, node: Node, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.out = 0  # of them, those who are asking now
        self._node = node
        self._rng = random.Random(f"watchers {seed}")
        self._go = asyncio.Event()
        self._go.set()
        self._kept: asyncio.StreamWriter | None = None  # the scraper's, which does not close it
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for name, work in (
            ("scraper", self._scrape()),
            ("prober", self._probe()),
            ("page-reader", self._read_page()),
            ("visitor", self._visit()),
        ):
            self._tasks.append(asyncio.create_task(self._guard(name, work), name=name))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._drop_kept()

    async def rest(self) -> None:
        """Until nothing is asked but what the open page is sent. `resume` ends it."""
        self._go.clear()
        while self.out:  # noqa: ASYNC110 - it is counted by many
            await asyncio.sleep(0.1)
        self._drop_kept()

    def resume(self) -> None:
        self._go.set()

    # --- Each of them -----------------------------------------------------------------------------------------------

    async def _scrape(self) -> None:
        while True:
            async with self._turn():
                status, text = await self.get("/metrics", keep=True)
            complete = "fairlead_build_info" in text and "fairlead_call_duration_seconds" in text
            self._judge("/metrics", status, {200}, "" if complete else "incomplete")
            await asyncio.sleep(SCRAPE_S)

    async def _probe(self) -> None:
        while True:
            async with self._turn():
                for path, right in PROBES.items():
                    self._judge(path, (await self.get(path))[0], right)
            await asyncio.sleep(PROBE_S)

    async def _read_page(self) -> None:
        while True:
            reader, writer = await self._open("/events")
            self.counts["page opened"] += 1
            try:
                while await self._document(reader):
                    self.counts["documents"] += 1
            finally:
                writer.close()
            await asyncio.sleep(RETRY_S)

    async def _visit(self) -> None:
        """Opens the page in a second tab, asks what a pod would get, and closes the tab without a word."""
        while True:
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * VISIT_S)
            async with self._turn():
                await self._look_around()
            self.counts["visits"] += 1

    async def _look_around(self) -> None:
        for path in FILES:
            self._judge("page files", (await self.get(path))[0], {200})
        reader, writer = await self._open("/events")
        for _ in range(self._rng.randint(1, 3)):
            await self._document(reader)
        for resource in (NVIDIA, AMD, LOW, ODD):
            question = f"/explain.json?resource={quote(resource)}&count={self._rng.randint(0, 9)}"
            status, text = await self.get(question)
            self._judge("what-if", status, {200, 400}, "" if isinstance(json.loads(text), dict) else "no object")
        writer.transport.abort()

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        await self._go.wait()
        self.out += 1
        try:
            yield
        finally:
            self.out -= 1

    # --- Requests ---------------------------------------------------------------------------------------------------

    async def get(self, path: str, *, keep: bool = False) -> tuple[int, str]:
        """The status and the body. Kept: the server has to end the connection, when nothing more comes."""
        reader, writer = await self._open(path, *([] if keep else ["Connection: close"]))
        if keep:
            self._drop_kept()
            self._kept = writer
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
        body = (await reader.readexactly(length)).decode()
        if not keep:
            writer.close()
        return int(head.split(" ")[1]), body

    async def _open(self, path: str, *fields: str) -> Connection:
        assert self._node.daemon.web is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", self._node.daemon.web.port, limit=LINE_MAX_BYTES)
        writer.write("\r\n".join([f"GET {path} HTTP/1.1", "Host: 127.0.0.1", *fields, "", ""]).encode())
        return reader, writer

    async def _document(self, reader: asyncio.StreamReader) -> bool:
        """The next one is read, and whole; False: the stream has ended."""
        while line := await reader.readline():
            if line.startswith(b"data: "):
                if not json.loads(line.removeprefix(b"data: "))["status"]["devices"]:
                    self.counts["documents without devices"] += 1
                return True
        return False

    def _judge(self, what: str, status: int, right: set[int], problem: str = "") -> None:
        self.counts[what] += 1
        if status not in right or problem:
            self.wrong.append(f"{what}: {status} {problem}")

    async def _guard(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever it is, the run fails with it
            self.wrong.append(f"{name}: {type(error).__name__}: {error}")

    def _drop_kept(self) -> None:
        if self._kept is not None:
            with contextlib.suppress(OSError):
                self._kept.close()
            self._kept = None
