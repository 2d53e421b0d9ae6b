"""Bytes for the extender's HTTP server: the parser gives the same for any cut of them, and a connection answers and
ends; nothing is left of it.
"""

from __future__ import annotations

import asyncio
import random
import re

from tests.clock import FakeClock, settle
from tests.fuzz.mutate import damage_bytes
from tests.fuzz.targets import promise
from tests.unit.scheduler.http.parsed import parse

from fairlead.scheduler.http.connection import Connection
from fairlead.scheduler.http.limits import Limits
from fairlead.scheduler.http.messages import PHRASES, Handler, Reply, Request
from fairlead.scheduler.http.service import Service

LIMITS = Limits(head_bytes=600, headers=12, body_bytes=2000, bodies_bytes=3000, small_body_bytes=500)
REQUESTS = (
    b'POST /filter HTTP/1.1\r\nHost: a:1\r\nContent-Type: text/json\r\nContent-Length: 14\r\n\r\n{"NodeName":0}',
    b"POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: 1200\r\n\r\n" + b"x" * 1200,
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n2;b=c\r\n01\r\n0\r\nT: u\r\n\r\n",
    b"PUT /filter HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n300\r\n" + b"y" * 768 + b"\r\n0\r\n\r\n",
    b"POST /bind HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    b"GET /healthz?verbose HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
    b"GET /healthz HTTP/1.0\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)
ANSWER = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r]*\r\n(?:[^\r\n]+\r\n)*\r\n")


class _Pipe(asyncio.Transport):
    """What a connection writes to. Sometimes it is full for a while."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.written = bytearray()
        self.paused = self.closed = False

    def connect(self, protocol: Connection) -> None:
        self.protocol = protocol
        protocol.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        promise(not self.closed, "something was written after the end")
        self.written += data
        if self._rng.random() < 0.1:
            self.protocol.pause_writing()
            asyncio.get_running_loop().call_soon(self.protocol.resume_writing)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()


class ExtenderTarget:
    block = 500

    async def start(self) -> None:
        self._errors: list[tuple[str, BaseException]] = []
        self._clock = FakeClock()
        routes: dict[str, dict[str, Handler]] = {
            "/filter": {"POST": _echo},
            "/bind": {"POST": _wait},
            "/healthz": {"GET": _echo},
        }
        self._service = Service(routes, self._clock, LIMITS, lambda *error: self._errors.append(error))

    async def case(self, rng: random.Random) -> None:
        data = b"".join(rng.choice(REQUESTS) for _ in range(rng.randint(1, 4)))
        if rng.random() < 0.9:
            data = damage_bytes(rng, data)
        pieces = _cut(rng, data)
        whole = parse([data], LIMITS)
        promise(parse(pieces, LIMITS) == whole, f"another cut gives something else for {data[:200]!r}")
        requests, refusal = whole
        promise(refusal is None or refusal[0] in PHRASES, f"status {refusal} for {data[:200]!r}")
        promise(all(len(request.body) <= LIMITS.body_bytes for request in requests), "a body is too large")
        await self._talk(rng, pieces, len(requests) + (refusal is not None))

    async def _talk(self, rng: random.Random, pieces: list[bytes], most: int) -> None:
        pipe = _Pipe(rng)
        pipe.connect(Connection(self._service))
        for piece in pieces:
            if pipe.closed:
                break
            if pipe.paused:
                await settle()
            pipe.protocol.data_received(piece)
            if rng.random() < 0.3:
                await settle()
        if not pipe.closed and rng.random() < 0.5 and not pipe.protocol.eof_received():
            pipe.close()
        await settle()
        for _ in range(20):  # its times end one after the other
            await self._clock.advance(200.0)
        promise(pipe.closed, f"a connection stays after {pieces!r:.300}")
        rest = _without_answers(bytes(pipe.written))
        promise(not rest[1], f"not an answer: {rest[1][:200]!r} for {pieces!r:.300}")
        finals = [code for code in rest[0] if code != 100]
        promise(set(finals) <= set(PHRASES), f"statuses {finals}")
        promise(len(finals) <= most + 1, f"{len(finals)} answers for {most} requests: {pieces!r:.300}")
        promise(self._service.counters.bytes_in_flight == 0, "room for a body is held by nobody")
        promise(self._service.counters.bodies_waiting == 0, "a body waits for ever")
        promise(not self._service.connections and not self._service.handlers, "a connection or a handler stays")
        promise(not self._errors, f"a handler failed: {self._errors}")
        promise(not self._clock.sleeping, "an alarm stays")

    async def stop(self) -> None:
        pass


async def _echo(request: Request) -> Reply:
    return Reply(request.body)


async def _wait(_request: Request) -> Reply:
    await asyncio.sleep(0)
    return Reply(b"{}")


def _without_answers(written: bytes) -> tuple[list[int], bytes]:
    """The statuses, and what is behind the last answer that is whole."""
    codes = []
    while found := ANSWER.match(written):
        size = re.search(rb"Content-Length: (\d+)", found[0])
        codes.append(int(found[1]))
        written = written[found.end() + (int(size[1]) if size else 0) :]
    return codes, written


def _cut(rng: random.Random, data: bytes) -> list[bytes]:
    marks = sorted(rng.randint(0, len(data)) for _ in range(rng.choice((0, 1, 2, 5, 20))))
    return [data[begin:end] for begin, end in zip([0, *marks], [*marks, len(data)], strict=True)]
