"""What a client cannot take: time, memory and connections that others need."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc

import msgspec
import pytest
from tests.unit.scheduler.http.place import HEALTH, Client, Place, post, serving

from fairlead.scheduler.http.limits import Limits

KIB = 1024
TIGHT = Limits(body_bytes=400 * KIB, bodies_bytes=800 * KIB, small_body_bytes=10 * KIB, connections=4)


async def test_a_head_that_does_not_come_is_not_waited_for():
    async with serving() as place, await place.connect() as client:
        client.writer.write(b"POST /echo HTTP/1.1\r\nHo")
        await place.until(lambda: place.service.beginning)
        await place.clock.advance(6.0)
        client.writer.write(b"st: a\r\n")
        await place.until(lambda: _connection(place)._parser.pending > 24)
        await place.clock.advance(3.9)
        assert place.counters.connections == 1
        await place.clock.advance(0.1)
        answer = await client.read()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert answer.error == "the head of the request did not come within 10 s"
        assert await client.read_end() == b""
        assert place.counters.abandoned == 1


async def test_a_connection_on_which_nothing_comes_is_closed_without_a_word():
    async with serving() as place, await place.connect() as client:
        assert (await client.ask(HEALTH)).status == 200
        await place.until(lambda: place.service.idle)
        await place.clock.advance(119.9)
        assert place.counters.connections == 1
        await place.clock.advance(0.1)
        assert await client.read_end() == b""
        assert place.counters.abandoned == 0


async def test_a_body_that_makes_no_progress_is_not_waited_for():
    async with serving() as place, await place.connect() as client:
        client.writer.write(post("/echo", b"x" * 1000, length=100_000))
        await place.until(lambda: place.counters.bytes_in_flight)
        await place.clock.advance(5.0)
        answer = await client.read()
        assert answer.status == 408
        assert answer.error == "the body of the request came too slowly: 1,000 bytes are here"
        assert place.counters.bytes_in_flight == 0
    assert place.counters.requests == {("/echo", 408): 1}


async def test_a_body_that_comes_slowly_has_an_end():
    async with serving() as place, await place.connect() as client:
        client.writer.write(post("/echo", length=10_000_000))
        for step in range(6):
            came = 20_000 * (step + 1)
            client.writer.write(b"x" * 20_000)
            await place.until(lambda came=came: _received(place) == came)  # type: ignore[misc]
            assert place.counters.connections == 1
            await place.clock.advance(5.0)
        assert (await client.read()).status == 408


async def test_100_megabytes_are_refused_without_being_held():
    """With a clock that stands still: the client can send all of it."""
    piece = b"x" * 2**20
    async with serving() as place:
        for head in (
            post("/echo", length=100 * 2**20),
            b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6400000\r\n",
        ):
            async with await place.connect() as client:
                client.writer.write(head)
                assert (await client.read()).status == 413
                tracemalloc.start()
                try:
                    for _ in range(100):
                        client.writer.write(piece)
                        await client.writer.drain()
                    _, peak = tracemalloc.get_traced_memory()
                finally:
                    tracemalloc.stop()
                assert peak < 6 * 2**20
                assert place.counters.bytes_in_flight == 0


async def test_a_refused_client_has_a_moment_to_read_why_and_no_more():
    async with serving() as place, await place.connect() as client:
        client.writer.write(post("/echo", length=2**30))
        await place.until(lambda: place.service.lingering)
        assert place.counters.connections == 1
        await place.clock.advance(1.0)
        await place.until(lambda: not place.counters.connections)


async def test_a_body_is_held_once():
    size = 40 * 2**20
    async with serving() as place, await place.connect() as client:
        body = b"x" * 2**20
        client.writer.write(post("/gated", length=size))
        tracemalloc.start()
        try:
            for _ in range(40):
                client.writer.write(body)
                await client.writer.drain()
            await place.until(lambda: place.asked)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(place.asked[0].body) == size
        assert peak < 1.5 * size


async def _fill(place: Place, stack: contextlib.AsyncExitStack) -> list[Client]:
    """Two large bodies that take all the room, and have not come yet."""
    clients = []
    for number in (1, 2):
        client = await stack.enter_async_context(await place.connect())
        client.writer.write(post("/gated", b"%d" % number, length=400 * KIB))
        await place.until(lambda size=number * 400 * KIB: place.counters.bytes_in_flight == size)  # type: ignore[misc]
        clients.append(client)
    return clients


async def test_large_bodies_wait_for_room_in_their_order_and_small_ones_do_not():
    async with serving(TIGHT) as place, contextlib.AsyncExitStack() as stack:
        place.gate.set()
        first, second = await _fill(place, stack)
        third = await stack.enter_async_context(await place.connect())
        client = await stack.enter_async_context(await place.connect())
        third.writer.write(post("/gated", b"3" * 400 * KIB))
        await place.until(lambda: place.counters.bodies_waiting == 1)
        for _ in range(20):
            assert (await client.ask(post("/echo", b"x" * 10 * KIB))).status == 200
        assert place.counters.bodies_waiting == 1
        assert not place.ended
        assert (await second.ask(b"2" * (400 * KIB - 1))).status == 200
        assert (await third.read()).status == 200
        assert place.counters.bodies_waiting == 0
        assert (await first.ask(b"1" * (400 * KIB - 1))).status == 200
        assert [body[0] for body in place.ended] == ["2", "3", "1"]
        assert place.counters.bytes_in_flight == 0


async def test_a_large_body_does_not_wait_for_ever():
    async with serving(msgspec.structs.replace(TIGHT, admission_s=4.0)) as place, contextlib.AsyncExitStack() as stack:
        await _fill(place, stack)
        third = await stack.enter_async_context(await place.connect())
        third.writer.write(post("/gated", b"", "Expect: 100-continue", length=400 * KIB))
        await place.until(lambda: place.counters.bodies_waiting == 1)
        await place.clock.advance(3.9)
        assert place.counters.bodies_waiting == 1
        await place.clock.advance(0.1)
        answer = await third.read()
        assert answer.status == 503
        assert answer.error.endswith("819,200 bytes; try again later")
        assert place.counters.bodies_waiting == 0


async def test_a_client_that_leaves_while_it_waits_gives_up_its_place():
    async with serving(TIGHT) as place, contextlib.AsyncExitStack() as stack:
        await _fill(place, stack)
        third = await place.connect()
        third.writer.write(post("/gated", length=400 * KIB))
        await place.until(lambda: place.counters.bodies_waiting == 1)
        third.writer.close()
        # Who waits is not read from. That it has gone shows when its time is over.
        await place.clock.advance(5.0)
        await place.until(lambda: place.counters.bodies_waiting == 0)


async def test_a_chunked_body_counts_as_the_largest_when_it_is_not_small():
    async with serving(TIGHT) as place, contextlib.AsyncExitStack() as stack:
        place.gate.set()
        first, _ = await _fill(place, stack)
        third = await stack.enter_async_context(await place.connect())
        chunk = b"2000\r\n" + b"3" * 0x2000 + b"\r\n"
        third.writer.write(b"POST /gated HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
        await place.until(lambda: place.counters.bytes_in_flight == 810 * KIB)
        third.writer.write(chunk)
        await place.until(lambda: place.counters.bodies_waiting == 1)
        third.writer.write(chunk * 10)
        assert (await first.ask(b"1" * (400 * KIB - 1))).status == 200
        await place.until(lambda: place.counters.bytes_in_flight == 800 * KIB)
        assert (await third.ask(b"0\r\n\r\n")).status == 200
        assert len(place.asked[-1].body) == 0x2000 * 12


async def test_the_connection_that_was_idle_longest_makes_room_for_a_new_one():
    async with serving(TIGHT) as place, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(await place.connect()) for _ in range(4)]
        for client in (clients[2], clients[0], clients[3], clients[1]):
            assert (await client.ask(HEALTH)).status == 200
        new = await stack.enter_async_context(await place.connect())
        assert (await new.ask(HEALTH)).status == 200
        assert await clients[2].read_end() == b""
        for number in (0, 1, 3):
            assert (await clients[number].ask(HEALTH)).status == 200
        assert (place.counters.connections, place.counters.evicted, place.counters.refused) == (4, 1, 0)


async def test_heads_that_do_not_come_keep_nobody_out():
    async with serving(TIGHT) as place, contextlib.AsyncExitStack() as stack:
        slow = []
        for number in range(4):
            slow.append(await stack.enter_async_context(await place.connect()))
            slow[-1].writer.write(b"GET /")
            await place.until(lambda number=number: len(place.service.beginning) == number + 1)  # type: ignore[misc]
        new = await stack.enter_async_context(await place.connect())
        assert (await new.ask(HEALTH)).status == 200
        assert await slow[0].read_end() == b""


async def test_when_all_connections_are_busy_a_new_one_is_told():
    async with serving(TIGHT) as place, contextlib.AsyncExitStack() as stack:
        busy = [await stack.enter_async_context(await place.connect()) for _ in range(4)]
        for client in busy:
            client.writer.write(post("/gated", b"x"))
        await place.until(lambda: len(place.asked) == 4)
        for number in range(1, 10):
            async with await place.connect() as new:
                answer = await new.read()
                assert answer.status == 503
                assert answer.error == "4 connections are open, and all are busy"
            assert place.counters.refused == number
            assert place.counters.connections <= 5
        place.gate.set()
        assert [(await client.read()).status for client in busy] == [200] * 4
        async with await place.connect() as new:
            assert (await new.ask(HEALTH)).status == 200


async def test_a_client_that_does_not_read_is_let_go():
    ask = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"
    async with serving() as place, await place.connect() as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.writer.write(ask * 50)
        await place.until(lambda: not _connection(place)._writable)
        await place.clock.advance(29.9)
        assert len(place.asked) == 1
        assert place.counters.connections == 1
        await place.clock.advance(0.1)
        await place.until(lambda: not place.counters.connections)
        assert place.counters.abandoned == 1
        assert len(place.asked) == 1


async def test_a_client_that_does_not_read_the_last_answer_is_let_go():
    ask = b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    async with serving() as place, await place.connect() as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.writer.write(ask)
        await place.until(lambda: not _connection(place)._writable)
        await place.clock.advance(30.0)
        await place.until(lambda: not place.counters.connections)


async def test_a_client_that_reads_slowly_gets_all_of_it():
    async with serving() as place, await place.connect(limit=1000) as client:
        client.writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n" + HEALTH)
        await place.until(lambda: not _connection(place)._writable)
        await place.clock.advance(20.0)
        assert (await client.read()).body == place.large
        await place.clock.advance(20.0)
        assert (await client.read()).body == b"ok\n"


async def test_a_client_that_asks_more_than_it_waits_for_is_held_by_the_kernel():
    async with serving() as place, await place.connect() as client:
        client.writer.write(post("/gated", b"first"))
        await place.until(lambda: place.asked)
        client.writer.write(post("/echo", b"x" * 2**20) * 30)
        await place.until(lambda: not _connection(place)._reading)
        held = _connection(place)._parser.pending
        assert 0 < held < 2**20
        for _ in range(100):  # turns of the loop in which it could come
            await asyncio.sleep(0)
        assert _connection(place)._parser.pending == held
        place.gate.set()
        assert (await client.read()).body == b"first"
        for _ in range(30):
            assert len((await client.read()).body) == 2**20


def test_limits_under_which_a_body_would_wait_for_nothing_are_refused():
    with pytest.raises(ValueError, match="must not fall"):
        Limits(body_bytes=2**29)
    with pytest.raises(ValueError, match="must not fall"):
        Limits(small_body_bytes=2**27)


async def test_many_small_calls_are_answered_during_a_flood_of_large_ones():
    """Sixty clients send large bodies again and again; others ask little, and each of them is answered."""
    limits = Limits(body_bytes=400 * KIB, bodies_bytes=800 * KIB, small_body_bytes=10 * KIB)
    async with serving(limits) as place:
        most = 0

        async def flood() -> None:
            nonlocal most
            async with await place.connect() as client:
                while True:
                    answer = await client.ask(post("/echo", b"x" * 400 * KIB))
                    assert answer.status == 200
                    most = max(most, place.counters.bytes_in_flight)

        floods = [asyncio.create_task(flood()) for _ in range(60)]
        await place.until(lambda: place.counters.bodies_waiting > 30)
        async with await place.connect() as client:
            for _ in range(100):
                assert (await client.ask(post("/echo", b"y" * 5 * KIB))).body == b"y" * 5 * KIB
        for task in floods:
            task.cancel()
        assert {type(end) for end in await asyncio.gather(*floods, return_exceptions=True)} == {asyncio.CancelledError}
        assert most <= limits.bodies_bytes + 60 * limits.small_body_bytes


def _connection(place: Place):
    (connection,) = place.service.connections
    return connection


def _received(place: Place) -> int:
    return _connection(place)._parser.received if place.service.connections else -1
