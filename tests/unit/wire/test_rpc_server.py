"""Our server against raw bytes: what foreign libraries never send, and peers that are stuck or silent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.unit.wire.house import ANSWER, ASK, HEAD, House, allocate, house

from fairlead.wire import deviceplugin as dp
from fairlead.wire import frames as f
from fairlead.wire.frames import ErrorCode
from fairlead.wire.grpc import length_prefixed
from fairlead.wire.headers import encode_fields
from fairlead.wire.proto import encode
from fairlead.wire.rpc import Call, Status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


__all__ = ["house"]  # a fixture


async def test_a_call_in_one_read_is_answered_in_one_write(house: House) -> None:
    await house.serve({dp.ALLOCATE: allocate})
    peer = await house.peer()
    peer.ask()
    fields, body = await peer.answer()
    assert fields == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}
    assert body == length_prefixed(encode(ANSWER))


async def test_an_answer_may_be_encoded_beforehand(house: House) -> None:
    async def later(_request: object, _call: Call) -> bytes:
        return encode(ANSWER)

    await house.serve({dp.ALLOCATE: lambda _request, _call: encode(ANSWER), dp.PRE_START_CONTAINER: later})
    peer = await house.peer()
    peer.ask()
    assert (await peer.answer())[1] == length_prefixed(encode(ANSWER))
    peer.ask(3, length_prefixed(b""), path=b"/v1beta1.DevicePlugin/PreStartContainer")
    assert (await peer.answer(3))[1] == length_prefixed(encode(ANSWER))


@pytest.mark.parametrize(
    ("method", "content_type", "status", "with_body"),
    [
        (b"GET", b"text/html", "405", True),
        (b"HEAD", b"text/html", "405", False),
        (b"POST", b"application/json", "415", True),
    ],
)
async def test_what_is_not_grpc_gets_plain_http(
    house: House, method: bytes, content_type: bytes, status: str, *, with_body: bool
) -> None:
    await house.serve({})
    peer = await house.peer()
    head = [(b":method", method), *HEAD[1:4], (b"content-type", content_type)]
    peer.send(f.frame(f.HEADERS, f.END_HEADERS, 1, encode_fields(head)), f.frame(f.DATA, 0, 1, b"body"))
    peer.send(f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, 1, encode_fields([(b"trailer", b"x")])))
    fields, body = await peer.answer()
    assert fields[":status"] == status
    assert int(fields["content-length"]) == len(b"This socket speaks gRPC only.\n")
    assert (body == b"This socket speaks gRPC only.\n") is with_body


async def test_a_request_that_does_not_decode_is_an_internal_error(house: House) -> None:
    await house.serve({dp.ALLOCATE: allocate})
    peer = await house.peer()
    peer.ask(1, length_prefixed(b"\x0a\x05"))
    fields, _ = await peer.answer()
    assert fields["grpc-status"] == str(int(Status.INTERNAL))
    assert fields["grpc-message"].startswith("the request does not decode")


async def test_a_malformed_timeout_is_an_internal_error(house: House) -> None:
    await house.serve({dp.ALLOCATE: allocate})
    peer = await house.peer()
    peer.ask(1, None, (b"grpc-timeout", b"soon"))
    fields, _ = await peer.answer()
    assert fields["grpc-status"] == str(int(Status.INTERNAL))
    assert fields["grpc-message"] == "malformed grpc-timeout 'soon'"


async def test_a_deadline_counts_from_the_headers(house: House) -> None:
    await house.serve({dp.ALLOCATE: allocate})
    peer = await house.peer()
    head = encode_fields([*HEAD, (b"grpc-timeout", b"10m")])
    peer.send(f.frame(f.HEADERS, f.END_HEADERS, 1, head))  # and the body never comes
    fields, _ = await peer.answer()
    assert fields["grpc-status"] == str(int(Status.DEADLINE_EXCEEDED))


async def test_a_call_without_a_body_is_refused(house: House) -> None:
    await house.serve({dp.ALLOCATE: allocate})
    peer = await house.peer()
    peer.send(f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, 1, encode_fields(HEAD)))
    assert (await peer.answer())[0]["grpc-message"] == "a request is exactly one message"
    peer.ask(3, length_prefixed(ASK) + b"\x00\x00")
    assert (await peer.answer(3))[0]["grpc-message"] == "a request is exactly one message"


async def test_unfinished_requests_of_all_streams_are_counted_together(house: House) -> None:
    await house.serve({dp.ALLOCATE: allocate}, request_bytes=20_000)
    peer = await house.peer()
    part = f.PREFACE[:0] + b"\x00\x00\x00\x40\x00" + bytes(11_000)
    for stream in (1, 3):
        peer.send(f.frame(f.HEADERS, f.END_HEADERS, stream, encode_fields(HEAD)), f.frame(f.DATA, 0, stream, part))
    fields, _ = await peer.answer(3)
    assert fields["grpc-status"] == str(int(Status.RESOURCE_EXHAUSTED))
    peer.send(f.frame(f.DATA, f.END_STREAM, 1, bytes(0x4000 - 11_000)))
    assert (await peer.answer(1))[0]["grpc-status"] == str(int(Status.INTERNAL))  # whole, if not an AllocateRequest


async def test_a_handler_with_a_wrong_answer_is_reported(house: House) -> None:
    async def wrong(_request: object, _call: Call) -> int:
        return 3

    await house.serve({dp.ALLOCATE: lambda _request, _call: None, dp.PRE_START_CONTAINER: wrong})
    peer = await house.peer()
    peer.ask()
    assert (await peer.answer())[0]["grpc-status"] == str(int(Status.UNKNOWN))
    peer.ask(3, length_prefixed(b""), path=b"/v1beta1.DevicePlugin/PreStartContainer")
    assert (await peer.answer(3))[0]["grpc-status"] == str(int(Status.UNKNOWN))
    assert [type(error) for error in house.errors] == [TypeError, TypeError]


async def test_a_handler_that_cancels_itself_answers_cancelled(house: House) -> None:
    async def give_up(_request: object, _call: Call) -> None:
        raise asyncio.CancelledError

    async def stream(_request: object, _call: Call) -> AsyncIterator[dp.ListAndWatchResponse]:
        yield dp.ListAndWatchResponse()
        raise asyncio.CancelledError

    await house.serve({dp.ALLOCATE: give_up, dp.LIST_AND_WATCH: stream})
    peer = await house.peer()
    peer.ask()
    assert (await peer.answer())[0]["grpc-status"] == str(int(Status.CANCELLED))
    peer.ask(3, length_prefixed(b""), path=b"/v1beta1.DevicePlugin/ListAndWatch")
    assert (await peer.answer(3))[0]["grpc-status"] == str(int(Status.CANCELLED))


async def test_a_stream_that_fails_midway_says_so_in_its_trailers(house: House) -> None:
    async def stream(_request: object, _call: Call) -> AsyncIterator[dp.ListAndWatchResponse]:
        yield dp.ListAndWatchResponse()
        raise ValueError("the driver is gone")

    await house.serve({dp.LIST_AND_WATCH: stream})
    peer = await house.peer()
    peer.ask(1, length_prefixed(b""), path=b"/v1beta1.DevicePlugin/ListAndWatch")
    fields, body = await peer.answer()
    assert body == length_prefixed(b"")
    assert (fields["grpc-status"], fields["grpc-message"]) == ("2", "the driver is gone")
    assert [type(error) for error in house.errors] == [ValueError]


async def test_a_call_reset_before_its_handler_ran_leaves_nothing(house: House) -> None:
    ran = []

    async def prepare(_request: object, _call: Call) -> dp.PreStartContainerResponse:
        ran.append(1)
        return dp.PreStartContainerResponse()

    await house.serve({dp.PRE_START_CONTAINER: prepare, dp.ALLOCATE: allocate})
    peer = await house.peer()
    peer.ask(1, length_prefixed(b""), path=b"/v1beta1.DevicePlugin/PreStartContainer")
    peer.send(f.rst_stream(1, ErrorCode.CANCEL))
    peer.ask(3)
    await peer.answer(3)
    assert ran == []


async def test_a_generator_is_asked_for_more_when_its_message_has_left(house: House) -> None:
    asked: list[int] = []

    async def stream(_request: object, _call: Call) -> AsyncIterator[bytes]:
        for number in range(3):
            asked.append(number)
            yield bytes((number,)) * 100

    await house.serve({dp.LIST_AND_WATCH: stream, dp.ALLOCATE: allocate})
    peer = await house.peer(hello=False)
    peer.hello({f.INITIAL_WINDOW_SIZE: 60})
    peer.ask(1, length_prefixed(b""), path=b"/v1beta1.DevicePlugin/ListAndWatch")
    kind, payload = -1, b""
    while kind != f.DATA:
        kind, _, _, payload = await peer.frame()
    assert asked == [0]
    peer.send(f.window_update(1, 100))
    peer.send(f.window_update(1, 1000))
    _, body = await peer.answer()
    assert len(payload) + len(body) == 3 * 105
    assert asked == [0, 1, 2]


STREAM = b"/v1beta1.DevicePlugin/ListAndWatch"


async def test_a_streaming_handler_that_raises_when_it_is_called_gets_a_status(house: House) -> None:
    def broken(_request: dp.Empty, _call: Call) -> AsyncIterator[bytes]:
        raise ValueError("no list yet")

    server = await house.serve({dp.LIST_AND_WATCH: broken})
    peer = await house.peer()
    peer.ask(1, length_prefixed(b""), path=STREAM)
    fields, body = await peer.answer()
    assert (fields["grpc-status"], fields["grpc-message"], body) == (str(int(Status.UNKNOWN)), "no list yet", b"")
    assert not server.tasks


async def test_a_stream_that_is_reset_in_the_read_in_which_it_came_runs_nothing(house: House) -> None:
    ran: list[str] = []

    async def watch(_request: dp.Empty, _call: Call) -> AsyncIterator[bytes]:
        ran.append("a step")
        yield b""

    server = await house.serve({dp.LIST_AND_WATCH: watch, dp.ALLOCATE: allocate})
    peer = await house.peer()
    peer.ask(1, length_prefixed(b""), path=STREAM)
    peer.send(f.rst_stream(1, ErrorCode.CANCEL))
    peer.ask(3)
    assert (await peer.answer(3))[0]["grpc-status"] == "0"
    await asyncio.sleep(0)
    assert not ran
    assert not server.tasks
