"""The extender among hostile clients: it stays small, says what is wrong, and answers kube-scheduler meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.server import ApiServer, api_server
from tests.system.extender import WORDS, port_of
from tests.system.process import Program, memory_bytes, program
from tests.unit.scheduler.rig import node, placed, pod

pytestmark = pytest.mark.timeout(180)
MIB = 2**20
CONNECTIONS = 500
ANSWERED_S = 5.0  # so long kube-scheduler waits; time in which a busy machine gives no core does not count
NAMES = [f"node-{number:04}" for number in range(2000)]
DEEP = b'{"Pod": {"spec": ' + b"[" * 500_000 + b"]" * 500_000 + b"}}"


class Scheduler:
    """kube-scheduler's side: one connection that is kept, one question after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, extender: Program) -> None:
        self._reader, self._writer, self._extender = reader, writer, extender
        self.slowest_s = 0.0

    def _now_s(self) -> float:
        """The clock, without the time that the extender or this test was ready to run and had no core."""
        delays = (Path(f"/proc/{pid}/schedstat").read_text().split()[1] for pid in ("self", self._extender.pid))
        return time.monotonic() - sum(map(int, delays)) / 1e9

    async def ask(self, method: str, path: str, body: Any = b"") -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        began_s = self._now_s()
        self._writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)
        async with asyncio.timeout(60):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            size = next(int(line.split()[1]) for line in head.splitlines() if line.startswith("Content-Length"))
            text = (await self._reader.readexactly(size)).decode()
        self.slowest_s = max(self.slowest_s, self._now_s() - began_s)
        return int(head.split()[1]), json.loads(text) if text[:1] in ("{", "[") else text

    async def place(self, times: int) -> None:
        for _ in range(times):
            status, found = await self.ask("POST", "/scheduler/filter", {"Pod": pod("p", 10), "NodeNames": ["n1"]})
            assert (status, found["NodeNames"]) == (200, ["n1"])


@asynccontextmanager
async def connected(port: int, extender: Program) -> AsyncIterator[Scheduler]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=64 * MIB)
    try:
        yield Scheduler(reader, writer, extender)
    finally:
        writer.close()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[Program, int]]:
    async with api_server() as server:
        _fill(server)
        env = {"KUBECONFIG": server.write_kubeconfig(tmp_path / "kubeconfig"), "NO_COLOR": "1"}
        async with program(*WORDS, "--listen", "127.0.0.1:0", env=env) as extender:
            port = await port_of(extender)
            await extender.says("ready")
            yield extender, port
            said = "\n".join(extender.lines)
            assert not any(word in said for word in ("Traceback", "request-failed", "loop-error")), said


def _fill(server: ApiServer) -> None:
    server.store.put("nodes", node("n1"))
    server.store.put("pods", placed("a", 6, "n1", 1), "default")
    server.store.put("pods", pod("p", 10), "default")


def post(path: str, body: bytes, size: int | None = None) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body) if size is None else size}\r\n\r\n".encode()
        + body
    )


SCORED = post("/scheduler/prioritize", json.dumps({"Pod": pod("q"), "NodeNames": NAMES}).encode())
CROWD = (
    post("/scheduler/filter", b"")[:40],  # a head that never ends
    post("/scheduler/filter", b"{", 900),  # a small body that never comes
    post("/scheduler/bind", b"{" * 1000, 40 * MIB),  # a large one that stops
    SCORED * 10,  # answers of half a megabyte, which are never read
    b"",  # nothing at all
)


@contextmanager
def crowd() -> Iterator[Callable[[int], None]]:
    """Gives the way to connect clients of all kinds. None of them reads."""
    held: list[socket.socket] = []

    def gather(port: int) -> None:
        for number in range(CONNECTIONS):
            one = socket.create_connection(("127.0.0.1", port), timeout=10)
            held.append(one)
            one.setblocking(False)
            data = CROWD[number % len(CROWD)]
            if data:
                one.send(data)  # as much as the kernel takes

    try:
        yield gather
    finally:
        for one in held:
            one.close()


async def test_500_slow_clients_take_little_memory_and_the_scheduler_is_answered_meanwhile(
    running: tuple[Program, int],
):
    extender, port = running
    async with connected(port, extender) as scheduler:
        await scheduler.place(5)
        before = memory_bytes(extender, "VmHWM")
        with crowd() as gather:
            await asyncio.to_thread(gather, port)
            await scheduler.place(20)
            async with connected(port, extender) as fresh:  # a burst of binds opens connections of its own
                await fresh.place(5)
        await scheduler.place(5)
        grown = memory_bytes(extender, "VmHWM") - before
    assert scheduler.slowest_s < ANSWERED_S
    assert fresh.slowest_s < ANSWERED_S
    assert grown < 120 * MIB, f"{grown / MIB:.0f} MiB"


async def _send(port: int, head: bytes, chunk: bytes, count: int) -> int:
    """The status; a server may answer and close before all is sent. 0: it has closed without a word."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = asyncio.create_task(reader.read(4096))
    try:
        writer.write(head)
        for _ in range(count):
            if answer.done():
                break
            writer.write(chunk)
            await writer.drain()
        async with asyncio.timeout(60):
            found = await answer
    except ConnectionError:
        found = answer.result() if answer.done() and answer.exception() is None else b""
    finally:
        answer.cancel()
        writer.close()
    return int(found.split()[1]) if found else 0


async def test_bodies_of_100_mb_are_refused_and_those_within_the_limit_have_a_limit_together(
    running: tuple[Program, int],
):
    extender, port = running
    before = memory_bytes(extender, "VmHWM")
    data = b"x" * MIB
    declared = post("/scheduler/filter", b"", 100 * MIB)
    chunked = b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    allowed = post("/scheduler/filter", b"", 60 * MIB)
    senders = [
        *(_send(port, declared, data, 100) for _ in range(10)),
        *(_send(port, chunked, b"100000\r\n" + data + b"\r\n", 100) for _ in range(2)),
        *(_send(port, allowed, data, 60) for _ in range(6)),
    ]
    async with connected(port, extender) as scheduler:
        sending = asyncio.gather(*senders)
        while not sending.done():
            await scheduler.place(1)
        statuses = await sending
    grown = memory_bytes(extender, "VmHWM") - before
    # 0: the end of the connection overtook the answer. 503 and 408: no room in time, or a sender without a core.
    assert 413 in statuses[:10], statuses
    assert set(statuses[:10]) <= {413, 0}, statuses
    assert set(statuses[10:12]) <= {413, 503, 408, 0}, statuses
    assert set(statuses[12:]) <= {200, 503, 408, 0}, statuses  # read, and found to be no JSON
    assert scheduler.slowest_s < ANSWERED_S
    # Limits: 256 MiB of bodies, and one of them is put together.
    assert grown < 400 * MIB, f"{grown / MIB:.0f} MiB"


async def test_what_makes_no_sense_is_told_so_and_changes_nothing(running: tuple[Program, int]):
    extender, port = running
    async with connected(port, extender) as scheduler:
        _, before = await scheduler.ask("GET", "/scheduler/inspect")
        for path, unreadable in (("filter", (200, "Error")), ("bind", (200, "Error")), ("preempt", (400, "error"))):
            for body in (b"", b"{", b"\xff\xfe", b"[]", b'{"Pod": 1}', DEEP, b'{"PodName": ' + b"9" * 100_000 + b"}"):
                status, found = await scheduler.ask("POST", f"/scheduler/{path}", body)
                accepted = path != "filter" and b"Pod" in body  # a key that the verb does not have
                assert accepted or (status, bool(found[unreadable[1]])) == (unreadable[0], True), (
                    path,
                    body[:40],
                    found,
                )
        unknown = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "nowhere"}
        status, found = await scheduler.ask("POST", "/scheduler/bind", unknown)
        assert (status, "nowhere" in found["Error"]) == (200, True)
        status, found = await scheduler.ask("POST", "/scheduler/filter", {"Pod": pod("p", 1), "NodeNames": NAMES})
        assert (status, found["NodeNames"]) == (200, [])
        for method, path, expected in (
            ("GET", "/scheduler/filter", 405),
            ("PUT", "/scheduler/bind", 405),
            ("POST", "/readyz", 405),
            ("POST", "/scheduler/shutdown", 404),
            ("GET", "/scheduler/inspect/%2e%2e", 404),
        ):
            assert (await scheduler.ask(method, path))[0] == expected, path
        assert (await scheduler.ask("GET", "/scheduler/inspect"))[1] == before
        await scheduler.place(1)
