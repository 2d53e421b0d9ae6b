"""Requests and answers over real connections: order, reuse, what is refused, and handlers that fail."""

from __future__ import annotations

import asyncio
import re
import resource
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.unit.scheduler.http.place import HEALTH, Place, post, serving

from fairlead.scheduler.http.messages import Reply, Request


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with serving() as place:
        yield place


@pytest.fixture
def many_files() -> Iterator[None]:
    """Both ends of the connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip(f"this process may open {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_handler_gets_the_request_and_its_reply_is_sent(place: Place):
    async with await place.connect() as client:
        answer = await client.ask(post("/echo?a=b", b'{"x": 1}', "Content-Type: application/json"))
    assert answer.status == 200
    assert answer.body == b'{"x": 1}'
    assert answer.headers == {"content-type": "application/json", "content-length": "8"}
    headers = {"host": "a", "content-length": "8", "content-type": "application/json"}
    assert place.asked == [Request("POST", "/echo", "a=b", headers, b'{"x": 1}')]
    assert place.counters.requests == {("/echo", 200): 1}


async def test_one_connection_carries_many_requests(place: Place):
    async with await place.connect() as client:
        for number in range(200):
            body = b"%d" % number * number * 10
            assert (await client.ask(post("/echo", body))).body == body
        assert place.counters.accepted == 1
        assert place.counters.connections == 1
    await place.until(lambda: place.counters.connections == 0)
    assert place.counters.bytes_in_flight == 0


async def test_requests_that_come_together_are_answered_in_their_order_and_one_at_a_time(place: Place):
    async with await place.connect() as client:
        client.writer.write(post("/gated", b"first") + post("/nowhere") + HEALTH + post("/echo", b"last"))
        await place.until(lambda: place.asked)
        assert [request.body for request in place.asked] == [b"first"]
        place.gate.set()
        answers = [await client.read() for _ in range(4)]
    assert [(answer.status, answer.body) for answer in answers if answer.status == 200] == [
        (200, b"first"),
        (200, b"ok\n"),
        (200, b"last"),
    ]
    assert answers[1].status == 404


async def test_thousands_of_small_requests_at_once_on_one_connection(place: Place):
    async with await place.connect() as client:
        client.writer.write(post("/nowhere", b"x") * 3000 + post("/echo", b"end"))
        for _ in range(3000):
            assert (await client.read()).status == 404
        assert (await client.read()).body == b"end"


async def test_a_request_may_come_byte_by_byte(place: Place):
    async with await place.connect() as client:
        for byte in post("/echo", b"hello"):
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        assert (await client.read()).body == b"hello"


async def test_500_connections_at_once_are_all_answered(place: Place, many_files: None):
    async def ask(number: int) -> bytes:
        async with await place.connect() as client:
            return (await client.ask(post("/gated", b"%d" % number))).body

    calls = [asyncio.create_task(ask(number)) for number in range(500)]
    await place.until(lambda: len(place.asked) == 500)
    assert place.counters.connections == 500
    place.gate.set()
    assert await asyncio.gather(*calls) == [b"%d" % number for number in range(500)]
    assert place.counters.requests == {("/gated", 200): 500}
    assert place.counters.refused == place.counters.evicted == 0


async def test_large_bodies_come_whole_in_both_directions(place: Place):
    body = bytes(range(256)) * 40_000
    async with await place.connect(limit=2**24) as client:
        assert (await client.ask(post("/echo", body))).body == body
        assert place.counters.bytes_in_flight == 0
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:70_000], body[70_000:], b""))
        head = b"PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert (await client.ask(head + chunks)).body == body
        assert place.counters.bytes_in_flight == 0


async def test_an_unknown_path_names_those_that_there_are(place: Place):
    async with await place.connect() as client:
        answer = await client.ask(post("/nowhere?x", b"body"))
        assert answer.status == 404
        assert re.match(r"nothing is served at '/nowhere'. Served are: /broken, .*, /wrong$", answer.error)
        assert (await client.ask(HEALTH)).status == 200
    assert place.counters.requests == {("", 404): 1, ("/healthz", 200): 1}


async def test_a_wrong_method_names_the_right_ones(place: Place):
    async with await place.connect() as client:
        answer = await client.ask(b"DELETE /echo HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer.status == 405
        assert answer.headers["allow"] == "POST, PUT"
        assert answer.error == "/echo is asked with POST, PUT, not with DELETE"
        assert (await client.ask(HEALTH)).status == 200


async def test_a_large_body_for_nobody_is_not_read(place: Place):
    async with await place.connect() as client:
        answer = await client.ask(post("/nowhere", length=5_000_000))
        assert (answer.status, answer.headers["connection"]) == (404, "close")
        assert await client.read_end() == b""
    assert place.counters.requests == {("", 404): 1}


async def test_an_answer_to_head_has_no_body(place: Place):
    async with await place.connect() as client:
        client.writer.write(HEALTH.replace(b"GET", b"HEAD"))
        assert (await client.read(bodiless=True)).status == 405
        assert (await client.ask(HEALTH)).body == b"ok\n"


async def test_an_answer_without_content_has_no_length(place: Place):
    async with await place.connect() as client:
        answer = await client.ask(post("/empty"))
        assert answer.status == 204
        assert not answer.headers
        assert (await client.ask(HEALTH)).body == b"ok\n"


@pytest.mark.parametrize(
    "request_bytes", [HEALTH.replace(b"1.1", b"1.0"), HEALTH.replace(b"Host", b"Connection: close\r\nHost")]
)
async def test_the_connection_ends_with_the_answer_when_the_client_wants_it(place: Place, request_bytes: bytes):
    async with await place.connect() as client:
        answer = await client.ask(request_bytes)
        assert answer.headers["connection"] == "close"
        assert await client.read_end() == b""


async def test_a_client_that_waits_is_told_to_send_its_body(place: Place):
    async with await place.connect() as client:
        answer = await client.ask(post("/echo", b"", "Expect: 100-continue", length=5))
        assert answer.status == 100
        assert (await client.ask(b"hello")).body == b"hello"
        # One that does not wait is not told.
        assert (await client.ask(post("/echo", b"hello", "Expect: 100-continue"))).body == b"hello"
        assert (await client.ask(post("/echo", b"", "Expect: 100-continue"))).body == b""


async def test_a_body_that_is_too_large_is_refused_before_the_client_sends_it(place: Place):
    async with await place.connect() as client:
        answer = await client.ask(post("/echo", b"", "Expect: 100-continue", length=2**30))
        assert answer.status == 413
        assert "67,108,864" in answer.error


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /" + b"x" * 20_000, 431),
        (post("/echo", b"0\r\n\r\n", "Transfer-Encoding: chunked") + HEALTH, 400),
        (post("/echo", b"hello", "Content-Length: 4") + HEALTH, 400),
        (b"PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n", 400),
    ],
)
async def test_what_is_no_request_is_refused_and_nothing_behind_it_is_read(place: Place, data: bytes, status: int):
    async with await place.connect() as client:
        client.writer.write(HEALTH)
        assert (await client.read()).status == 200
        answer = await client.ask(data)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert answer.error
        assert await client.read_end() == b""
    await place.until(lambda: not place.counters.connections)
    assert not place.asked
    assert place.counters.bytes_in_flight == 0


async def test_a_client_that_sends_no_more_gets_all_its_answers(place: Place):
    async with await place.connect() as client:
        client.writer.write(post("/gated", b"first") + HEALTH + post("/echo", b"last") + b"GET /heal")
        await place.until(lambda: place.asked)
        client.writer.write_eof()
        await place.until(lambda: not place.service.idle)
        place.gate.set()
        assert [(await client.read()).body for _ in range(3)] == [b"first", b"ok\n", b"last"]
        assert await client.read_end() == b""


async def test_what_cannot_be_read_behind_them_is_refused_also_when_the_client_sends_no_more(place: Place):
    async with await place.connect() as client:
        client.writer.write(post("/gated", b"first") + b"nonsense\r\n\r\n")
        await place.until(lambda: place.asked)
        client.writer.write_eof()
        place.gate.set()
        assert (await client.read()).body == b"first"
        assert (await client.read()).status == 400
        assert await client.read_end() == b""
    await place.until(lambda: not place.counters.connections)


@pytest.mark.parametrize("data", [b"", b"GET /", post("/echo", b"x", length=5)])
async def test_a_client_that_leaves_early_leaves_nothing(place: Place, data: bytes):
    async with await place.connect() as client:
        client.writer.write(data)
        await place.until(lambda: place.counters.connections)
    await place.until(lambda: not place.counters.connections)
    assert place.counters.bytes_in_flight == 0
    assert not place.service.idle
    assert not place.service.beginning
    assert place.clock.sleeping == 0


async def test_a_handler_that_fails_gives_500_and_no_detail_and_the_connection_goes_on(place: Place):
    async with await place.connect() as client:
        for path in ("/broken", "/cancelled"):
            answer = await client.ask(post(path))
            assert answer.status == 500
            assert answer.error == "the answer could not be made; the journal says why"
        assert (await client.ask(HEALTH)).status == 200
    assert place.errors == [
        ("/broken", "RuntimeError: a defect"),
        ("/cancelled", "CancelledError: "),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        b"bytes",
        Reply("text"),  # type: ignore[arg-type]
        Reply(b"", "200"),  # type: ignore[arg-type]
        Reply(b"", 99),
        Reply(b"", 100),
        Reply(b"", 1000),
        Reply(b"", type="a\r\nX: y"),
        Reply(b"", type="\u20ac"),
    ],
)
async def test_a_reply_that_cannot_be_sent_is_a_failure_of_its_handler(place: Place, wrong: object):
    place.wrong["x"] = wrong
    async with await place.connect() as client:
        assert (await client.ask(post("/wrong", b"x"))).status == 500
        assert (await client.ask(HEALTH)).status == 200
    ((path, reason),) = place.errors
    assert path == "/wrong"
    assert "the handler gave" in reason


async def test_a_handler_that_takes_too_long_is_ended_and_the_connection_goes_on(place: Place):
    async with await place.connect() as client:
        client.writer.write(post("/gated", b"x") + HEALTH)
        await place.until(lambda: place.asked)
        await place.clock.advance(30.0)
        answer = await client.read()
        assert answer.status == 504
        assert answer.error == "the answer was not made within 30 s"
        assert (await client.read()).body == b"ok\n"
    assert place.cancelled == 1
    assert not place.errors
    assert place.counters.requests == {("/gated", 504): 1, ("/healthz", 200): 1}


@pytest.mark.parametrize("hard", [True, False])
async def test_what_a_client_asked_for_is_done_also_when_it_has_gone(place: Place, hard: bool):
    client = await place.connect()
    client.writer.write(post("/gated", b"bind"))
    await place.until(lambda: place.asked)
    if hard:
        await client.reset()
        await place.until(lambda: not place.counters.connections)
    else:
        client.writer.close()
    assert place.counters.bytes_in_flight == 4
    place.gate.set()
    await place.until(lambda: place.ended == ["bind"])
    await place.until(lambda: not place.counters.connections)
    assert place.counters.bytes_in_flight == 0
    assert place.counters.requests == {("/gated", 200): 1}
    assert not place.errors
