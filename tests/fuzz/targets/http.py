"""Bytes for the HTTP responder: a request is answered once, with a status that it knows; nothing else comes out."""

from __future__ import annotations

import asyncio
import random
import re
import socket

from tests.fuzz.mutate import damage_bytes
from tests.fuzz.targets import promise

from fairlead.observe.http import PHRASES, HttpServer, Reply, Request, listen

REQUESTS = (
    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9402\r\nAccept: text/plain\r\n\r\n",
    b"HEAD /readyz?verbose HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n",
    b"GET /healthz HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: [::1]:9402\r\nConnection: close\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody",
    b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n",
)
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


class HttpTarget:
    block = 100

    async def start(self) -> None:
        self._errors: list[Exception] = []
        paths = ("/metrics", "/readyz", "/healthz")
        self._server = HttpServer(
            listen("127.0.0.1:0"),
            dict.fromkeys(paths, _answer),
            on_error=lambda _path, error: self._errors.append(error),
        )

    async def case(self, rng: random.Random) -> None:
        data = b"".join(rng.choice(REQUESTS) for _ in range(rng.randint(1, 3)))
        if rng.random() < 0.9:
            data = damage_bytes(rng, data)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        for piece in _pieces(rng, data):
            writer.write(piece)
        own: socket.socket = writer.get_extra_info("socket")
        try:
            own.shutdown(socket.SHUT_WR)
            answer = await asyncio.wait_for(reader.read(), 10)
        except OSError:
            answer = b""  # refused while it was still sending
        finally:
            writer.close()
        codes = [int(code) for code in STATUS.findall(answer)]
        promise(set(codes) <= set(PHRASES), f"statuses {codes} for {data[:200]!r}")
        promise(not answer or answer.startswith(b"HTTP/1.1 "), f"not an answer for {data[:200]!r}: {answer[:200]!r}")
        promise(len(codes) <= 3 + data.count(b"\r\n\r\n"), f"more answers than requests for {data[:200]!r}")
        promise(not self._errors, f"a route failed for {data[:200]!r}: {self._errors}")

    async def stop(self) -> None:
        self._server.close()


async def _answer(request: Request) -> Reply:
    return Reply(f"{request.path}\n".encode())


def _pieces(rng: random.Random, data: bytes) -> list[bytes]:
    cut = rng.randint(0, len(data))
    return [data[:cut], data[cut:]]
