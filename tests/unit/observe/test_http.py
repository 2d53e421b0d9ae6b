"""The responder: what it answers, what it refuses, and what a client cannot make it do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from fairlead.model.errors import HostError
from fairlead.observe import http
from fairlead.observe.http import HttpServer, Reply, Request, listen

ASK = b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Place:
    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.errors: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.ended = 0
        self.large_ones = 0
        routes = {"/hello": self.hello, "/large": self.large, "/broken": self.broken, "/events": self.events}
        self.server = HttpServer(
            listen("127.0.0.1:0"), routes, frozenset({"gpu-1"}), on_error=lambda path, _error: self.errors.append(path)
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - what the server holds calls no one
                await asyncio.sleep(0.005)

    async def hello(self, request: Request) -> Reply:
        self.asked.append(request)
        await self.gate.wait()
        return Reply(b"hello\n")

    async def large(self, _request: Request) -> Reply:
        self.large_ones += 1
        return Reply(b"x" * 32_000_000)

    async def events(self, _request: Request) -> Reply:
        return Reply(b"first\n", stream=self.forever())

    async def forever(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 65_536 + b"\n"
                await asyncio.sleep(0)
        finally:
            self.ended += 1

    async def broken(self, _request: Request) -> Reply:
        raise RuntimeError("a defect")

    async def exchange(self, data: bytes) -> str:
        """Sends it, and reads until the server closes the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(data)
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        return answer.decode()

    async def get(self, path: str, *fields: str) -> str:
        lines = [f"GET {path} HTTP/1.1", *(fields or ("Host: localhost:1",)), "Connection: close"]
        return await self.exchange("\r\n".join([*lines, "", ""]).encode())


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    place = Place()
    yield place
    place.server.close()


async def test_a_route_is_answered_with_its_body(place: Place):
    head, _, body = (await place.get("/hello?verbose=1")).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert "Content-Length: 6" in head
    assert body == "hello\n"
    assert place.asked == [Request("/hello", "verbose=1")]


async def test_head_has_the_length_and_no_body(place: Place):
    answer = await place.exchange(ASK.replace(b"GET", b"HEAD").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert "Content-Length: 6" in answer
    assert answer.endswith("\r\n\r\n")


async def test_requests_that_come_together_are_answered_one_after_the_other(place: Place):
    answer = await place.exchange(ASK * 3 + ASK.replace(b"1.1", b"1.0"))
    assert answer.count("HTTP/1.1 200") == 4


async def test_a_request_may_come_byte_by_byte(place: Place):
    reader, writer = await asyncio.open_connection("127.0.0.1", place.server.port)
    for byte in ASK:
        writer.write(bytes([byte]))
        await writer.drain()
    async with asyncio.timeout(10):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", "400 Bad Request"),
        (b"GET /hello HTTP/2.0\r\nHost: localhost\r\n\r\n", "400 Bad Request"),
        (b"GET /hello HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "400 Bad Request"),
        (b"GET /hello HTTP/1.1\r\nHost : localhost\r\n\r\n", "400 Bad Request"),
        (b"POST /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", "405 Method Not Allowed"),
        (b"GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", "413 Content Too Large"),
        (b"GET /hello HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", "413 Content Too Large"),
        (b"GET /" + b"x" * 9_000, "431 Request Header Fields Too Large"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", "400 Bad Request"),
    ],
)
async def test_what_is_no_request_of_ours_is_refused_and_the_connection_ends(
    place: Place, request_bytes: bytes, status: str
):
    assert (await place.exchange(request_bytes)).startswith(f"HTTP/1.1 {status}\r\n")
    assert not place.asked


async def test_an_unknown_path_names_the_known_ones(place: Place):
    answer = await place.get("/../etc/passwd")
    assert answer.startswith("HTTP/1.1 404 ")
    assert "/broken, /events, /hello, /large" in answer


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9402", "[::1]:9402", "10.1.2.3", "GPU-1:9402"])
async def test_addresses_and_names_of_this_host_are_served(place: Place, host: str):
    assert (await place.get("/hello", f"Host: {host}")).startswith("HTTP/1.1 200 ")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "[evil]", "", "gpu-1.evil.example"])
async def test_a_foreign_name_that_leads_here_is_refused(place: Place, host: str):
    answer = await place.get("/hello", f"Host: {host}")
    assert answer.startswith("HTTP/1.1 421 ")
    assert "http.hosts" in answer


async def test_a_route_that_fails_gives_500_and_no_detail(place: Place):
    answer = await place.get("/broken")
    assert answer.startswith("HTTP/1.1 500 ")
    assert "a defect" not in answer
    assert place.errors == ["/broken"]


async def test_connections_are_bounded(place: Place):
    place.gate.clear()
    held = [await asyncio.open_connection("127.0.0.1", place.server.port) for _ in range(http.MAX_CONNECTIONS)]
    for _, writer in held:
        writer.write(ASK)
    await place.until(lambda: len(place.asked) == http.MAX_CONNECTIONS)
    assert (await place.get("/hello")).startswith("HTTP/1.1 503 ")
    place.gate.set()
    for reader, writer in held:
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /hello HT", b"GET /hello HTTP/1.1\r\nHost: localhost\r\n"])
async def test_connections_that_ask_for_nothing_keep_no_probe_out(place: Place, sent: bytes):
    """The kubelet would restart a daemon that any pod keeps from answering."""
    held = [await asyncio.open_connection("127.0.0.1", place.server.port) for _ in range(3 * http.MAX_CONNECTIONS)]
    for _, writer in held:
        writer.write(sent)
    for _ in range(5):
        assert (await place.get("/hello")).startswith("HTTP/1.1 200 ")
        assert len(place.server.connections) <= http.MAX_CONNECTIONS
    for _, writer in held:
        writer.close()


@pytest.mark.parametrize("path", ["/hello", "/nowhere", "/broken", "/events"])
async def test_every_answer_has_the_strict_policy(place: Place, path: str):
    reader, writer = await asyncio.open_connection("127.0.0.1", place.server.port)
    writer.write(ASK.replace(b"/hello", path.encode()))
    async with asyncio.timeout(10):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    writer.close()
    for field in (
        "Content-Security-Policy: default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "Cache-Control: no-store",
    ):
        assert field in head.splitlines()


async def test_a_client_that_sends_nothing_is_let_go(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "DEADLINE_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", place.server.port)
    writer.write(b"GET /hello HT")
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()


async def test_a_client_that_does_not_read_is_let_go(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "DEADLINE_S", 0.05)
    with socket.create_connection(("127.0.0.1", place.server.port)) as deaf:
        deaf.sendall(ASK.replace(b"hello", b"large"))
        await place.until(lambda: bool(place.server.connections))
        await place.until(lambda: not place.server.connections)


async def test_a_client_that_asks_again_and_does_not_read_gets_no_second_answer(place: Place):
    with socket.create_connection(("127.0.0.1", place.server.port)) as deaf:
        deaf.sendall(ASK.replace(b"hello", b"large") * 20)
        await place.until(lambda: bool(place.large_ones))
        for _ in range(100):
            await asyncio.sleep(0)
        assert place.large_ones == 1


async def test_a_request_that_comes_late_has_its_whole_time(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "DEADLINE_S", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", place.server.port)
    await place.until(lambda: bool(place.server.connections))
    monkeypatch.setattr(http, "DEADLINE_S", 10.0)
    place.gate.clear()
    writer.write(ASK)
    await asyncio.sleep(0.3)  # the time of a client that sends nothing is over
    place.gate.set()
    async with asyncio.timeout(10):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_head_of_a_stream_opens_none(place: Place):
    answer = await place.exchange(b"HEAD /events HTTP/1.0\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200 ")
    assert answer.endswith("\r\n\r\n")


async def test_a_stream_goes_on_until_the_client_leaves(place: Place):
    reader, writer = await asyncio.open_connection("127.0.0.1", place.server.port)
    writer.write(ASK.replace(b"hello", b"events"))
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Length" not in head
        assert await reader.readline() == b"first\n"
        await reader.readexactly(1_000_000)
    writer.close()
    await place.until(lambda: place.ended == 1)
    assert place.server.streams == 0


async def test_streams_are_bounded(place: Place):
    open_ones = [await asyncio.open_connection("127.0.0.1", place.server.port) for _ in range(http.MAX_STREAMS)]
    for _, writer in open_ones:
        writer.write(ASK.replace(b"hello", b"events"))
    await place.until(lambda: place.server.streams == http.MAX_STREAMS)
    assert (await place.get("/events")).startswith("HTTP/1.1 503 ")
    assert (await place.get("/hello")).startswith("HTTP/1.1 200 ")
    for _, writer in open_ones:
        writer.close()
    await place.until(lambda: place.server.streams == 0)


async def test_a_client_that_does_not_read_its_stream_is_let_go(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "DEADLINE_S", 0.05)
    with socket.create_connection(("127.0.0.1", place.server.port)) as deaf:
        deaf.sendall(ASK.replace(b"hello", b"events"))
        await place.until(lambda: place.ended == 1)
        await place.until(lambda: not place.server.connections)


@pytest.mark.parametrize("address", ["9402", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "no.such.host.invalid:1"])
def test_an_address_that_cannot_be_is_named(address: str):
    with pytest.raises(HostError, match=r"http\.listen"):
        listen(address)


def test_an_address_that_is_taken_is_named():
    with listen("127.0.0.1:0") as first:
        port = first.getsockname()[1]
        with pytest.raises(HostError, match=f"127.0.0.1:{port}: .*--http"):
            listen(f"127.0.0.1:{port}")
