"""Our server against raw bytes: what foreign libraries never send, and peers that are stuck or silent."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from fairlead.wire import deviceplugin as dp
from fairlead.wire import frames as f
from fairlead.wire.frames import ErrorCode
from fairlead.wire.grpc import prefix
from fairlead.wire.headers import HeaderReader, encode_fields
from fairlead.wire.proto import encode
from fairlead.wire.rpc import Call, Limits, Server, Status
from fairlead.wire.unix import listen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from fairlead.wire.serving import ServerLink

HEAD = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/v1beta1.DevicePlugin/Allocate"),
    (b":authority", b"%2Frun%2Fp.sock"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]
ASK = encode(dp.AllocateRequest((dp.ContainerAllocateRequest(("a",)),)))
ANSWER = dp.AllocateResponse((dp.ContainerAllocateResponse(envs={"A": "a"}),))


# Calls that fill many reads, and whose answers are more than any socket buffer holds.
CROWD = 6000


class Peer:
    """A client that sends what it is told and reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.headers = HeaderReader(1 << 20)

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    def hello(self, settings: dict[int, int] | None = None) -> None:
        self.send(f.PREFACE, f.settings(settings or {}))

    def ask(self, stream: int = 1, body: bytes | None = None, *extra: tuple[bytes, bytes], path: bytes = b"") -> None:
        head = [(name, path if path and name == b":path" else value) for name, value in HEAD]
        self.send(f.frame(f.HEADERS, f.END_HEADERS, stream, encode_fields([*head, *extra])))
        self.send(f.frame(f.DATA, f.END_STREAM, stream, prefix(ASK) if body is None else body))

    async def frame(self) -> tuple[int, int, int, bytes]:
        high, low, kind, flags, stream = f.FRAME_HEADER.unpack(await self.reader.readexactly(f.HEADER_BYTES))
        return kind, flags, stream, await self.reader.readexactly(high << 8 | low)

    async def answer(self, stream: int = 1) -> tuple[dict[str, str], bytes]:
        """All header fields of the response, trailers included, and its body."""
        fields: dict[str, str] = {}
        body = b""
        while True:
            kind, flags, where, payload = await self.frame()
            if where != stream:
                continue
            if kind == f.HEADERS:
                fields |= {name.decode(): value.decode() for name, value in self.headers.read(payload).fields}
            elif kind == f.DATA:
                body += payload
            if kind in {f.HEADERS, f.DATA} and flags & f.END_STREAM:
                return fields, body

    async def goodbye(self) -> int:
        """The code of the GOAWAY with which the connection ends."""
        code = -1
        try:
            while True:
                kind, _, _, payload = await self.frame()
                if kind == f.GOAWAY:
                    code = f.TWO_UINT32.unpack_from(payload)[1]
        except asyncio.IncompleteReadError:
            return code


class House:
    """A server whose handlers are the test's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.errors: list[BaseException] = []
        self.peers: list[Peer] = []
        self.server: Server | None = None

    async def serve(self, handlers: dict[Any, Callable[[Any, Call], Any]], **limits: float) -> Server:
        made = Limits(**limits)  # type: ignore[arg-type]  # floats and ints alike, by name
        self.server = Server(handlers, limits=made, on_error=lambda _, error: self.errors.append(error))
        await self.server.start(listen(self.path))
        return self.server

    async def peer(self, *, hello: bool = True) -> Peer:
        reader, writer = await asyncio.open_unix_connection(self.path, limit=1 << 16)
        peer = Peer(reader, writer)
        self.peers.append(peer)
        if hello:
            peer.hello()
        return peer


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[House]:
    house = House(path)
    yield house
    for peer in house.peers:
        peer.writer.close()
    if house.server is not None:
        await house.server.stop(0)
        assert house.server.connections == 0
        assert not house.server.tasks


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path / "p.sock") as made:
        yield made


def allocate(_request: dp.AllocateRequest, _call: Call) -> dp.AllocateResponse:
    return ANSWER


async def test_a_call_in_one_read_is_answered_in_one_write(house: House) -> None:
    await house.serve({dp.ALLOCATE: allocate})
    peer = await house.peer()
    peer.ask()
    fields, body = await peer.answer()
    assert fields == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}
    assert body == prefix(encode(ANSWER))


async def test_an_answer_may_be_encoded_beforehand(house: House) -> None:
    async def later(_request: object, _call: Call) -> bytes:
        return encode(ANSWER)

    await house.serve({dp.ALLOCATE: lambda _request, _call: encode(ANSWER), dp.PRE_START_CONTAINER: later})
    peer = await house.peer()
    peer.ask()
    assert (await peer.answer())[1] == prefix(encode(ANSWER))
    peer.ask(3, prefix(b""), path=b"/v1beta1.DevicePlugin/PreStartContainer")
    assert (await peer.answer(3))[1] == prefix(encode(ANSWER))


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
    peer.ask(1, prefix(b"\x0a\x05"))
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
    peer.ask(3, prefix(ASK) + b"\x00\x00")
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
    peer.ask(3, prefix(b""), path=b"/v1beta1.DevicePlugin/PreStartContainer")
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
    peer.ask(3, prefix(b""), path=b"/v1beta1.DevicePlugin/ListAndWatch")
    assert (await peer.answer(3))[0]["grpc-status"] == str(int(Status.CANCELLED))


async def test_a_stream_that_fails_midway_says_so_in_its_trailers(house: House) -> None:
    async def stream(_request: object, _call: Call) -> AsyncIterator[dp.ListAndWatchResponse]:
        yield dp.ListAndWatchResponse()
        raise ValueError("the driver is gone")

    await house.serve({dp.LIST_AND_WATCH: stream})
    peer = await house.peer()
    peer.ask(1, prefix(b""), path=b"/v1beta1.DevicePlugin/ListAndWatch")
    fields, body = await peer.answer()
    assert body == prefix(b"")
    assert (fields["grpc-status"], fields["grpc-message"]) == ("2", "the driver is gone")
    assert [type(error) for error in house.errors] == [ValueError]


async def test_a_call_reset_before_its_handler_ran_leaves_nothing(house: House) -> None:
    ran = []

    async def prepare(_request: object, _call: Call) -> dp.PreStartContainerResponse:
        ran.append(1)
        return dp.PreStartContainerResponse()

    await house.serve({dp.PRE_START_CONTAINER: prepare, dp.ALLOCATE: allocate})
    peer = await house.peer()
    peer.ask(1, prefix(b""), path=b"/v1beta1.DevicePlugin/PreStartContainer")
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
    peer.ask(1, prefix(b""), path=b"/v1beta1.DevicePlugin/ListAndWatch")
    kind, payload = -1, b""
    while kind != f.DATA:
        kind, _, _, payload = await peer.frame()
    assert asked == [0]
    peer.send(f.window_update(1, 100))
    peer.send(f.window_update(1, 1000))
    _, body = await peer.answer()
    assert len(payload) + len(body) == 3 * 105
    assert asked == [0, 1, 2]


async def test_a_peer_that_reads_nothing_pauses_us_and_is_left_in_the_end(house: House) -> None:
    closed = asyncio.Event()
    sent = []

    async def stream(_request: object, _call: Call) -> AsyncIterator[bytes]:
        try:
            while True:
                sent.append(1)
                yield bytes(200_000)
        finally:
            closed.set()

    server = await house.serve({dp.LIST_AND_WATCH: stream}, stall_s=0.05)
    peer = await house.peer(hello=False)
    peer.hello({f.INITIAL_WINDOW_SIZE: f.MAX_WINDOW})
    peer.send(f.window_update(0, f.MAX_WINDOW - f.DEFAULT_WINDOW))
    peer.ask(1, prefix(b""), path=b"/v1beta1.DevicePlugin/ListAndWatch")
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport can
    await closed.wait()
    assert len(sent) < 20
    assert server.connections == 0


async def crowd(house: House, handled: list[int]) -> tuple[Peer, ServerLink]:
    """A peer that has sent far more calls than it reads answers for, and the server's end of its connection."""

    def count(_request: object, _call: Call) -> bytes:
        handled.append(1)
        return bytes(2000)

    server = await house.serve({dp.ALLOCATE: count}, concurrent_streams=CROWD)
    peer = await house.peer(hello=False)
    peer.hello({f.INITIAL_WINDOW_SIZE: f.MAX_WINDOW})
    peer.send(f.window_update(0, f.MAX_WINDOW - f.DEFAULT_WINDOW))
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport can
    for stream in range(1, 2 * CROWD, 2):
        peer.ask(stream)
    for _ in range(300):  # more turns of the loop than it takes to read everything
        await asyncio.sleep(0)
    return peer, next(iter(server.links))


async def test_calls_are_not_read_while_answers_are_not(house: House) -> None:
    handled: list[int] = []
    peer, link = await crowd(house, handled)
    assert not link.transport.is_reading()
    assert 0 < len(handled) < CROWD / 2
    peer.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
    for stream in range(1, 2 * CROWD, 2):
        assert (await peer.answer(stream))[0]["grpc-status"] == "0"
    assert len(handled) == CROWD


async def test_a_connection_that_is_left_reads_to_the_end(house: House) -> None:
    """Input that nobody read would turn the close into a reset, and the peer would lose what we said last."""
    handled: list[int] = []
    _, link = await crowd(house, handled)
    before = len(handled)
    link.leave()
    assert link.transport.is_reading()
    await asyncio.sleep(0)
    assert len(handled) == before


async def test_a_peer_that_said_hello_is_not_waited_for(house: House) -> None:
    server = await house.serve({dp.ALLOCATE: allocate})
    peer = await house.peer(hello=False)
    await peer.frame()
    timer = next(iter(server.links))._preface
    assert timer is not None
    assert not timer.cancelled()
    peer.hello()
    peer.ask()
    await peer.answer()
    assert timer.cancelled()


async def test_a_peer_without_window_is_left_in_the_end(house: House) -> None:
    await house.serve({dp.ALLOCATE: allocate}, stall_s=0.05)
    peer = await house.peer(hello=False)
    peer.hello({f.INITIAL_WINDOW_SIZE: 0})
    peer.ask()
    assert await peer.goodbye() == ErrorCode.ENHANCE_YOUR_CALM


async def test_a_slow_peer_that_goes_on_reading_is_kept(house: House) -> None:
    server = await house.serve({dp.ALLOCATE: allocate})
    peer = await house.peer(hello=False)
    peer.hello({f.INITIAL_WINDOW_SIZE: 1})
    peer.ask()
    for turn in range(3):
        while (await peer.frame())[0] != f.DATA:
            pass
        link = next(iter(server.links))
        if turn:
            link._check_stall()  # as the timer would; a byte has left since it last looked
        peer.send(f.window_update(1, 1))
    peer.send(f.window_update(1, 1000))
    assert (await peer.answer())[0]["grpc-status"] == "0"
    next(iter(server.links))._check_stall()  # nothing waits any more: nothing to complain about
    assert server.connections == 1


async def test_a_peer_that_asks_and_does_not_read_is_cut_off(house: House) -> None:
    await house.serve({dp.ALLOCATE: lambda _request, _call: bytes(10_000)}, queue_bytes=50_000)
    peer = await house.peer(hello=False)
    peer.hello({f.INITIAL_WINDOW_SIZE: 0})
    for stream in range(1, 21, 2):
        peer.ask(stream)
    assert await peer.goodbye() == ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("said", [b"", f.PREFACE[:10], f.PREFACE], ids=["nothing", "half a preface", "no settings"])
async def test_a_silent_peer_is_left(house: House, said: bytes) -> None:
    await house.serve({}, preface_s=0.02)
    peer = await house.peer(hello=False)
    peer.send(said)
    assert await peer.goodbye() == ErrorCode.SETTINGS_TIMEOUT


async def test_a_peer_that_breaks_the_rules_hears_why(house: House) -> None:
    ended = asyncio.Event()

    async def prepare(_request: object, _call: Call) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await house.serve({dp.PRE_START_CONTAINER: prepare})
    peer = await house.peer()
    peer.ask(1, prefix(b""), path=b"/v1beta1.DevicePlugin/PreStartContainer")
    peer.send(f.frame(f.PING, 0, 0, b"12345678"))
    while (await peer.frame())[0] != f.PING:
        pass
    await asyncio.sleep(0)
    peer.send(f.frame(f.DATA, 0, 0, b"x"), bytes(100_000))
    assert await peer.goodbye() == ErrorCode.PROTOCOL_ERROR
    await ended.wait()


async def test_a_peer_that_ignores_our_goodbye_is_closed_on(house: House) -> None:
    server = await house.serve({dp.ALLOCATE: allocate})
    peer = await house.peer()
    peer.ask()
    await peer.answer()
    assert server.connections == 1
    await server.stop(0)  # the peer neither reads nor closes
    assert server.connections == 0
    assert await peer.goodbye() == ErrorCode.NO_ERROR
    await server.stop()


async def test_stopping_leaves_the_socket_file(house: House) -> None:
    server = await house.serve({})
    await server.stop()
    assert house.path.is_socket()


async def test_a_connection_accepted_too_late_is_closed(house: House) -> None:
    server = await house.serve({})
    server.stopping = True  # as when stop began while the connection was still in the queue
    peer = await house.peer(hello=False)
    assert await peer.goodbye() == -1
    assert server.connections == 0
