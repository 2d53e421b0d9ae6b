"""Bytes for running daemons over HTTP: every route, on loopback and behind a token.

A request is answered once, with a status that the responder knows and never with 500. No route fails and no task
crashes. After a block both daemons answer the probe and the kubelet's Allocate, and have given the memory back.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import random
import re
import shutil
import socket
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, urlencode

from tests.fuzz.mutate import ODD, damage_bytes, damage_text
from tests.fuzz.targets import promise

from fairlead.app.daemon import Daemon
from fairlead.config.load import parse
from fairlead.kit.clock import SystemClock
from fairlead.observe.http import PHRASES
from fairlead.observe.journal import Fact, Journal
from fairlead.wire import deviceplugin as dp
from fairlead.wire.rpc import Channel

CONFIG = """
backends: [{{kind: sim, fleet: {{devices: [{{count: 3, vendor: nvidia, links: nvswitch}}]}}}}]
rules: [{{resource: nvidia.com/gpu, replicas: 2}}]
kubelet: {{directory: {root}/dp, podResources: {root}/none.sock}}
status: {{socket: {root}/fl.sock}}
http: {{listen: "127.0.0.1:0", usage: true, names: [generic, gke, hami], tokenFile: "{token}"}}
"""
TOKEN = "a1b2c3"
# Right questions for the routes that take one; the others are asked as they are.
QUESTIONS = {
    "/explain.json": ({"resource": "nvidia.com/gpu", "count": "2"}, {"resource": "gpu", "count": "99"}, {}),
    "/history.json": ({"device": "0"}, {"device": "nobody"}, {}),
    "/readyz": ({"verbose": ""},),
}
FRAMES = (
    "GET {target} HTTP/1.1\r\nHost: 127.0.0.1:9402\r\nAccept: text/plain\r\n{token}\r\n",
    "HEAD {target} HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n{token}\r\n",
    "GET {target} HTTP/1.0\r\n{token}\r\n",
    "GET {target} HTTP/1.1\r\nHost: [::1]:9402\r\nConnection: close\r\n{token}\r\n",
    "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n{token}\r\nbody",
    "GET {target} HTTP/1.1\r\nHost: evil.example\r\n{token}\r\n",
)
ALLOWED = set(PHRASES) - {500}
FAILURES = {"http-failed", "loop-error", "task-crashed"}
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
MIB = 1024 * 1024
KEPT_MAX_BYTES = MIB  # by both daemons after a block
USED_MAX_BYTES = 4 * MIB  # at any moment of it
MEASURED_EVERY = 8  # blocks: to follow memory takes three times as long
DEADLINE_S = 10.0


class _Served:
    """One daemon, and what its journal said of failures."""

    def __init__(self, root: Path, token: str) -> None:
        root.mkdir()
        if token:
            (root / "token").write_text(token)
        config = CONFIG.format(root=root, token=root / "token" if token else "")
        clock = SystemClock()
        self.failures: list[Fact] = []
        self.daemon = Daemon(parse(config, "fuzz"), clock=clock, journal=Journal(clock, self._saw))
        self.task = asyncio.create_task(self.daemon.run())
        assert self.daemon.web is not None
        self.web = self.daemon.web
        self.routes = sorted(self.web.routes())

    def _saw(self, facts: Sequence[Fact]) -> None:
        self.failures += [fact for fact in facts if fact.kind in FAILURES]

    async def ready(self) -> None:
        async with asyncio.timeout(20):
            while not (self.web.port and self.daemon.spoken):  # noqa: ASYNC110 - the daemon has no event for it
                await asyncio.sleep(0.001)

    async def send(self, *pieces: bytes) -> bytes:
        """All that comes back until the daemon hangs up, which it does when the client has said all."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.web.port)
        own: socket.socket = writer.get_extra_info("socket")
        try:
            for piece in pieces:
                writer.write(piece)
            with contextlib.suppress(OSError):  # refused while it was still sending
                own.shutdown(socket.SHUT_WR)
                return await asyncio.wait_for(reader.read(), DEADLINE_S)
            return b""
        finally:
            writer.close()

    async def watch(self) -> bytes:
        """The first of a stream; then the client goes without a word."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.web.port)
        writer.write(f"GET /events?token={TOKEN} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        try:
            return await asyncio.wait_for(reader.readuntil(b"}\n\n"), DEADLINE_S)
        finally:
            writer.transport.abort()

    def judge(self, data: bytes, answer: bytes) -> None:
        codes = [int(code) for code in STATUS.findall(answer)]
        promise(set(codes) <= ALLOWED, f"statuses {codes} for {data[:200]!r}")
        promise(not answer or answer.startswith(b"HTTP/1.1 "), f"not an answer for {data[:200]!r}: {answer[:200]!r}")
        promise(len(codes) <= 3 + data.count(b"\r\n\r\n"), f"more answers than requests for {data[:200]!r}")
        promise(b"Traceback" not in answer, f"a traceback for {data[:200]!r}")
        self.daemon.journal.flush()
        promise(not self.failures, f"a route failed for {data[:200]!r}: {self.failures}")
        promise(not self.task.done(), f"the daemon ended with {data[:200]!r}")

    async def still_serves(self) -> None:
        alive = await self.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        promise(alive.startswith(b"HTTP/1.1 200 "), f"the probe of a live daemon: {alive[:200]!r}")
        [endpoint] = self.daemon.supervisor.endpoints.values()
        channel = await Channel.connect(str(endpoint.socket), timeout_s=DEADLINE_S)
        slot = endpoint.resource.slots[0].id
        asked = dp.AllocateRequest((dp.ContainerAllocateRequest((slot,)),))
        given = await channel.unary(dp.ALLOCATE, asked, timeout_s=DEADLINE_S)
        promise(len(given.container_responses) == 1, f"Allocate gave {given}")
        await channel.close()

    async def stop(self) -> None:
        self.daemon.stop()
        await asyncio.wait_for(self.task, 20)


class HttpTarget:
    block = 250

    def __init__(self) -> None:
        self._blocks = 0

    async def start(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="fl"))
        self._complain = asyncio.get_running_loop().get_exception_handler()
        self._served = (_Served(self._root / "open", ""), _Served(self._root / "token", TOKEN))
        for served in self._served:
            await served.ready()
            await self._greet(served)
        self._blocks += 1
        if self._blocks % MEASURED_EVERY == 1:
            tracemalloc.start()

    async def _greet(self, served: _Served) -> None:
        """Every route answers a right question; whatever is made once is made before memory is measured."""
        for path in served.routes:
            question = urlencode({**QUESTIONS.get(path, ({},))[0], "token": TOKEN})
            data = f"GET {path}?{question} HTTP/1.0\r\n\r\n".encode()
            answer = await (served.watch() if path == "/events" else served.send(data))
            served.judge(data, answer)
            want = b"503" if path == "/readyz" else b"200"  # no kubelet is there to register with
            promise(answer.startswith(b"HTTP/1.1 " + want), f"{path}: {answer[:200]!r}")
            if path.endswith(".json"):
                json.loads(answer.partition(b"\r\n\r\n")[2])
        await served.still_serves()

    async def case(self, rng: random.Random) -> None:
        served = rng.choice(self._served)
        if rng.random() < 0.02:
            served.judge(b"/events", await served.watch())
            return
        data = b"".join(_request(rng, served.routes) for _ in range(rng.randint(1, 3)))
        if rng.random() < 0.6:
            data = damage_bytes(rng, data)
        cut = rng.randint(0, len(data))
        served.judge(data, await served.send(data[:cut], data[cut:]))

    async def stop(self) -> None:
        for served in self._served:
            await served.still_serves()
        await self._check_memory()
        for served in self._served:
            await served.stop()
            promise(not served.failures, f"a failure at the end: {served.failures}")
        asyncio.get_running_loop().set_exception_handler(self._complain)
        shutil.rmtree(self._root, ignore_errors=True)

    async def _check_memory(self) -> None:
        if not tracemalloc.is_tracing():
            return
        await asyncio.sleep(0)  # the connections that were just closed are forgotten
        gc.collect()
        kept_bytes, used_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        promise(kept_bytes <= KEPT_MAX_BYTES, f"{kept_bytes} bytes are kept after {self.block} cases")
        promise(used_bytes <= USED_MAX_BYTES, f"{used_bytes} bytes were used at once")


def _request(rng: random.Random, routes: Sequence[str]) -> bytes:
    path = rng.choice(routes)
    question = dict(rng.choice(QUESTIONS.get(path, ({},))))
    for key in [*question, "token", "é"]:
        if rng.random() < 0.3:
            question[key] = str(rng.choice(ODD))
    query = urlencode(question, errors="replace")
    target = quote(damage_text(rng, path), safe="/", errors="replace") if rng.random() < 0.1 else path
    target += "?" + (damage_text(rng, query) if rng.random() < 0.3 else query) if query else ""
    token = rng.choice((TOKEN, TOKEN, TOKEN, "", "x", "é" * 40))
    fields = f"Authorization: Bearer {token}\r\n" if token else ""
    text = rng.choice(FRAMES).format(target=target.replace(" ", "+"), token=fields)
    return text.encode("utf-8", "replace")
