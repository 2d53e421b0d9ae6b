"""Where the server listens, and how it ends."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path

import pytest
from tests.unit.scheduler.http.place import HEALTH, Client, Place, post, serving

from fairlead.model.errors import HostError


async def test_a_unix_socket_is_for_its_owner_and_goes_with_the_server(tmp_path: Path):
    path = tmp_path / "x.sock"
    place = Place()
    assert place.server.listen(f"unix:{path}") == f"unix:{path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    place.listen()
    async with Client(*await asyncio.open_unix_connection(path)) as client:
        assert (await client.ask(HEALTH)).body == b"ok\n"
    async with await place.connect() as client:  # one server, two addresses
        assert (await client.ask(HEALTH)).body == b"ok\n"
    assert place.counters.requests == {("/healthz", 200): 2}
    await place.server.close()
    assert not path.exists()


async def test_a_socket_that_another_has_put_there_stays(tmp_path: Path):
    path = tmp_path / "x.sock"
    place = Place()
    place.server.listen(f"unix:{path}")
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        await place.server.close()
        assert path.exists()


async def test_every_address_of_the_host_is_served():
    place = Place()
    address = place.server.listen(":0")
    async with Client(*await asyncio.open_connection("127.0.0.1", int(address[1:]))) as client:
        assert (await client.ask(HEALTH)).body == b"ok\n"
    await place.server.close()


@pytest.mark.parametrize(
    "address", ["", "8888", "127.0.0.1:x", "127.0.0.1:99999", "no.such.host.invalid:0", "unix:", "unix:/dev/null"]
)
async def test_an_address_that_cannot_be_is_named(address: str):
    with pytest.raises(HostError, match="cannot listen on"):
        Place().server.listen(address)


async def test_an_address_that_is_taken_is_named():
    async with serving() as place:
        with pytest.raises(HostError, match=r"cannot listen on .* in use"):
            Place().server.listen(f"127.0.0.1:{place.port}")


async def test_the_end_waits_for_requests_that_are_under_way_and_not_for_idle_connections():
    place = Place()
    place.listen()
    async with await place.connect() as idle, await place.connect() as busy, await place.connect() as sending:
        assert (await idle.ask(HEALTH)).status == 200
        busy.writer.write(post("/gated", b"first") + post("/echo", b"second"))
        sending.writer.write(post("/echo", b"he", length=5))
        await place.until(lambda: place.asked and place.counters.bytes_in_flight == 10)
        closing = asyncio.create_task(place.server.close())
        assert await idle.read_end() == b""
        with pytest.raises(OSError):  # noqa: PT011 - refused, or reset by the kernel
            await place.connect()
        assert not closing.done()
        answer = await sending.ask(b"llo")
        assert (answer.body, answer.headers["connection"]) == (b"hello", "close")
        assert not closing.done()
        place.gate.set()
        answer = await busy.read()
        assert (answer.body, answer.headers["connection"]) == (b"first", "close")
        assert await busy.read_end() == b""
        await closing
    assert [request.body for request in place.asked] == [b"first", b"hello"]
    assert place.clock.sleeping == 0


async def test_the_end_does_not_wait_longer_than_its_grace():
    place = Place()
    place.listen()
    async with await place.connect() as busy, await place.connect() as slow:
        busy.writer.write(post("/gated", b"x"))
        slow.writer.write(b"GET /")
        await place.until(lambda: place.asked and place.service.beginning)
        closing = asyncio.create_task(place.server.close(grace_s=3.0))
        await place.clock.until_asleep(3.0)
        await place.clock.advance(2.9)
        assert not closing.done()
        await place.clock.advance(0.1)
        await closing
        assert await busy.read_end() == b""
        assert await slow.read_end() == b""
    assert place.cancelled == 1
    assert not place.errors
    assert place.counters.connections == 0
    assert place.counters.bytes_in_flight == 0


async def test_the_end_waits_until_an_answer_has_been_read():
    place = Place()
    place.listen()
    async with await place.connect(limit=1000) as client:
        client.writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n" + HEALTH)
        await place.until(lambda: [c for c in place.service.connections if not c._writable])  # type: ignore[attr-defined]
        closing = asyncio.create_task(place.server.close())
        await place.clock.until_asleep(10.0)
        assert not closing.done()
        assert (await client.read()).body == place.large
        assert await client.read_end() == b""
        await closing


async def test_a_connection_that_comes_with_the_end_is_closed():
    place = Place()
    place.listen()
    with socket.create_connection(("127.0.0.1", place.port)) as client:
        place.server._listeners[0]._accept()  # and not yet a connection of the server
        await place.server.close()
        await place.until(lambda: place.counters.accepted == 1 and place.counters.connections == 0)
        assert client.recv(1) == b""


async def test_the_end_waits_for_a_handler_whose_client_has_gone():
    place = Place()
    place.listen()
    async with await place.connect() as client:
        client.writer.write(post("/gated", b"bind"))
        await place.until(lambda: place.asked)
        await client.reset()
        await place.until(lambda: not place.counters.connections)
    closing = asyncio.create_task(place.server.close())
    await place.clock.until_asleep(10.0)
    assert not closing.done()
    place.gate.set()
    await closing
    assert place.ended == ["bind"]
