"""A server on loopback with a clock that is turned by hand, and clients that say what they like."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self

from msgspec import Struct
from tests.clock import FakeClock

from fairlead.cluster.tls import ServerCertificates
from fairlead.scheduler.http.limits import Limits
from fairlead.scheduler.http.messages import Reply, Request
from fairlead.scheduler.http.server import Server

PATIENCE_S = 30.0
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


def post(path: str, body: bytes = b"", *fields: str, length: int | None = None) -> bytes:
    """A request. With `length`, only the first part of its body may be there."""
    size = len(body) if length is None else length
    lines = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {size}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


class Answer(Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        assert self.headers["content-type"] == "application/json"
        (key, text) = json.loads(self.body).popitem()
        assert key == "error"
        return str(text)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def ask(self, data: bytes) -> Answer:
        self.writer.write(data)
        return await self.read()

    async def read(self, *, bodiless: bool = False) -> Answer:
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            size = 0 if bodiless else int(headers.get("content-length", "0"))
            version, status, *_ = first.split(" ")
            assert version == "HTTP/1.1"
            return Answer(int(status), headers, await self.reader.readexactly(size))

    async def reset(self) -> None:
        """Goes without a goodbye."""
        own: socket.socket = self.writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def read_end(self) -> bytes:
        """What is there until the server ends the connection."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


class Place:
    def __init__(self, limits: Limits | None = None) -> None:
        self.clock = FakeClock()
        self.limits = limits or Limits()
        self.asked: list[Request] = []
        self.ended: list[str] = []  # bodies of gated requests that were done
        self.cancelled = 0
        self.errors: list[tuple[str, str]] = []
        self.gate = asyncio.Event()
        self.wrong: dict[str, Any] = {}
        self.large = b"x" * 32_000_000
        routes: dict[str, dict[str, Any]] = {
            "/echo": {"POST": self.echo, "PUT": self.echo},
            "/gated": {"POST": self.gated},
            "/healthz": {"GET": self.healthz},
            "/large": {"GET": self.give_large},
            "/broken": {"POST": self.broken},
            "/cancelled": {"POST": self.cancel},
            "/wrong": {"POST": self.give_wrong},
            "/empty": {"POST": self.give_empty},
        }
        self.server = Server(routes, self.clock, self.limits, self.on_error)
        self.service = self.server._service
        self.counters = self.server.counters

    def listen(self, address: str = "127.0.0.1:0", tls: ServerCertificates | None = None) -> int:
        self.port = int(self.server.listen(address, tls).rpartition(":")[2])
        return self.port

    async def connect(self, **how: Any) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port, **how))

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - what the server holds calls no one
                await asyncio.sleep(0.002)

    def on_error(self, path: str, error: BaseException) -> None:
        self.errors.append((path, f"{type(error).__name__}: {error}"))

    async def echo(self, request: Request) -> Reply:
        self.asked.append(request)
        return Reply(request.body)

    async def gated(self, request: Request) -> Reply:
        self.asked.append(request)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.ended.append(request.body[:100].decode())
        return Reply(request.body[:100])

    async def healthz(self, _request: Request) -> Reply:
        return Reply(b"ok\n", type="text/plain")

    async def give_large(self, request: Request) -> Reply:
        self.asked.append(request)
        return Reply(self.large)

    async def broken(self, _request: Request) -> Reply:
        raise RuntimeError("a defect")

    async def cancel(self, _request: Request) -> Reply:
        raise asyncio.CancelledError

    async def give_wrong(self, request: Request) -> Any:
        return self.wrong[request.body.decode()]

    async def give_empty(self, _request: Request) -> Reply:
        return Reply(b"nobody reads this", 204)


@contextlib.asynccontextmanager
async def serving(limits: Limits | None = None, tls: ServerCertificates | None = None) -> AsyncIterator[Place]:
    place = Place(limits)
    place.listen(tls=tls)
    try:
        yield place
    finally:
        place.gate.set()
        closing = asyncio.ensure_future(place.server.close(grace_s=0.0))
        while not closing.done():
            await place.clock.advance(0.0)
            await asyncio.sleep(0.001)
        await closing
