"""Our client against a server that says whatever the test wants."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from fairlead.wire import deviceplugin as dp
from fairlead.wire import frames as f
from fairlead.wire.frames import ErrorCode
from fairlead.wire.grpc import length_prefixed
from fairlead.wire.headers import encode_fields
from fairlead.wire.proto import encode
from fairlead.wire.rpc import Channel, Limits, RpcError, Status
from fairlead.wire.rpc_client import ClientProtocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HEAD = encode_fields([(b":status", b"200"), (b"content-type", b"application/grpc")])
OK = encode_fields([(b"grpc-status", b"0")])
BODY = length_prefixed(encode(dp.AllocateResponse()))


def head(block: bytes, *, end: bool = False, stream: int = 1) -> bytes:
    return f.header_frames(stream, block, end_stream=end, frame_bytes=f.DEFAULT_FRAME_BYTES)


def data(body: bytes, *, end: bool = False, stream: int = 1) -> bytes:
    return f.frame(f.DATA, f.END_STREAM if end else 0, stream, body)


class Stage:
    """A server: for each request it plays the next scene."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.scenes: list[bytes] = []
        self.hello = f.settings({})
        self.kinds: list[tuple[int, int]] = []
        self.seen = asyncio.Event()
        self.gone = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._play, self.path)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writer.write(self.hello)
        try:
            await reader.readexactly(len(f.PREFACE))
            while True:
                high, low, kind, flags, stream = f.FRAME_HEADER.unpack(await reader.readexactly(f.HEADER_BYTES))
                payload = await reader.readexactly(high << 8 | low)
                self.kinds.append((kind, f.UINT32.unpack(payload)[0] if kind == f.RST_STREAM else stream))
                self.seen.set()
                if kind == f.DATA and flags & f.END_STREAM and self.scenes:
                    scene = self.scenes.pop(0)
                    if scene == b"hang up":
                        return
                    writer.write(scene)
        except asyncio.IncompleteReadError:
            pass
        finally:
            self._tasks.discard(task)
            self.gone.set()
            writer.close()

    async def until(self, kind: int, number: int) -> None:
        while (kind, number) not in self.kinds:
            self.seen.clear()
            await self.seen.wait()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(f"{tmp_path}/k.sock")
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def channel(stage: Stage) -> AsyncIterator[Channel]:
    made = await Channel.connect(stage.path, timeout_s=5)
    yield made
    await made.close()
    await made.close()  # twice does no harm


async def failing(channel: Channel) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await channel.unary(dp.ALLOCATE, dp.AllocateRequest(), timeout_s=20)
    return caught.value


OUTCOMES = {
    "no such page": (
        head(encode_fields([(b":status", b"404")]), end=True),
        Status.UNIMPLEMENTED,
        "the peer does not speak gRPC: it answered HTTP 404",
    ),
    "bad gateway with a page": (
        head(encode_fields([(b":status", b"502"), (b"content-type", b"text/html")])) + data(b"<p>", end=True),
        Status.UNAVAILABLE,
        "the peer does not speak gRPC: it answered HTTP 502",
    ),
    "teapot": (head(encode_fields([(b":status", b"418")]), end=True), Status.UNKNOWN, None),
    "a web page": (
        head(encode_fields([(b":status", b"200"), (b"content-type", b"text/html")])),
        Status.UNKNOWN,
        "the peer does not speak gRPC: it answered HTTP 200",
    ),
    "no status": (head(HEAD) + head(encode_fields([(b"x", b"y")]), end=True), Status.UNKNOWN, None),
    "no trailers": (head(HEAD) + data(BODY, end=True), Status.INTERNAL, "the server ended the call without a status"),
    "unknown status": (head(HEAD) + head(encode_fields([(b"grpc-status", b"99")]), end=True), Status.UNKNOWN, ""),
    "trailers only": (
        head(HEAD + encode_fields([(b"grpc-status", b"7"), (b"grpc-message", b"n%C3%B6")]), end=True),
        Status.PERMISSION_DENIED,
        "nö",
    ),
    "no message": (
        head(HEAD) + head(OK, end=True),
        Status.INTERNAL,
        "/v1beta1.DevicePlugin/Allocate answered 0 messages instead of one",
    ),
    "two messages": (head(HEAD) + data(BODY * 2) + head(OK, end=True), Status.INTERNAL, None),
    "garbage": (head(HEAD) + data(length_prefixed(b"\x0a")) + head(OK, end=True), Status.INTERNAL, None),
    "compressed": (head(HEAD) + data(b"\x01\x00\x00\x00\x01x"), Status.INTERNAL, None),
    "too long": (head(HEAD) + data(b"\x00\xff\x00\x00\x01x"), Status.RESOURCE_EXHAUSTED, None),
    "reset": (f.rst_stream(1, ErrorCode.INTERNAL_ERROR), Status.INTERNAL, None),
    "reset with a strange code": (
        f.rst_stream(1, 4000),
        Status.INTERNAL,
        "the server reset the call with code 4000",
    ),
    "cancelled": (f.rst_stream(1, ErrorCode.CANCEL), Status.CANCELLED, "the server reset the call with CANCEL"),
    "calm": (f.rst_stream(1, ErrorCode.ENHANCE_YOUR_CALM), Status.RESOURCE_EXHAUSTED, None),
    "malformed": (
        head(encode_fields([(b":status", b"2")]), end=True),
        Status.INTERNAL,
        "the server broke HTTP/2: :status b'2' is not allowed",
    ),
    "connection broken": (f.frame(f.DATA, 0, 0), Status.UNAVAILABLE, "DATA on stream 0"),
    "hangs up": (b"hang up", Status.UNAVAILABLE, "the peer closed the connection"),
    "goes away": (
        f.goaway(0, ErrorCode.ENHANCE_YOUR_CALM, b"too many"),
        Status.UNAVAILABLE,
        "the server is going away with ENHANCE_YOUR_CALM: too many",
    ),
    "goes away in peace": (f.goaway(0, 0), Status.UNAVAILABLE, "the server is going away"),
}


@pytest.mark.parametrize(("scene", "status", "message"), OUTCOMES.values(), ids=OUTCOMES)
async def test_an_outcome_has_its_status(
    channel: Channel, stage: Stage, scene: bytes, status: Status, message: str | None
) -> None:
    stage.scenes = [scene]
    error = await failing(channel)
    assert error.status is status
    if message is not None:
        assert error.message == message


async def test_informational_answers_are_passed_over(channel: Channel, stage: Stage) -> None:
    early = head(encode_fields([(b":status", b"103")]))
    stage.scenes = [early + head(HEAD) + data(BODY) + head(OK, end=True)]
    assert await channel.unary(dp.ALLOCATE, dp.AllocateRequest()) == dp.AllocateResponse()


async def test_a_refused_call_is_asked_again(channel: Channel, stage: Stage) -> None:
    good = head(HEAD, stream=5) + data(BODY, stream=5) + head(OK, end=True, stream=5)
    stage.scenes = [f.rst_stream(1, ErrorCode.REFUSED_STREAM), f.rst_stream(3, ErrorCode.REFUSED_STREAM), good]
    assert await channel.unary(dp.ALLOCATE, dp.AllocateRequest()) == dp.AllocateResponse()


async def test_a_call_refused_again_and_again_is_unavailable(channel: Channel, stage: Stage) -> None:
    stage.scenes = [f.rst_stream(stream, ErrorCode.REFUSED_STREAM) for stream in range(1, 21, 2)]
    assert (await failing(channel)).status is Status.UNAVAILABLE


async def test_a_call_finishes_after_goaway_and_the_channel_closes(channel: Channel, stage: Stage) -> None:
    stage.scenes = [f.goaway(1, 0) + head(HEAD) + data(BODY) + head(OK, end=True)]
    assert await channel.unary(dp.ALLOCATE, dp.AllocateRequest()) == dp.AllocateResponse()
    assert channel.closed
    await stage.gone.wait()
    assert (await failing(channel)).status is Status.UNAVAILABLE


async def test_calls_waiting_for_a_stream_hear_of_the_end(stage: Stage) -> None:
    stage.hello = f.settings({f.MAX_CONCURRENT_STREAMS: 1})
    channel = await Channel.connect(stage.path, timeout_s=5)
    first = asyncio.create_task(channel.unary(dp.ALLOCATE, dp.AllocateRequest()))
    await stage.until(f.DATA, 1)
    second = asyncio.create_task(channel.unary(dp.ALLOCATE, dp.AllocateRequest()))
    third = asyncio.create_task(channel.unary(dp.ALLOCATE, dp.AllocateRequest()))
    await asyncio.sleep(0)
    third.cancel()
    await channel.close()
    results = await asyncio.gather(first, second, third, return_exceptions=True)
    assert [type(result) for result in results] == [RpcError, RpcError, asyncio.CancelledError]
    assert isinstance(results[0], RpcError)
    assert results[0].status is Status.CANCELLED


async def test_a_deadline_resets_the_stream(channel: Channel, stage: Stage) -> None:
    with pytest.raises(RpcError) as caught:
        await channel.unary(dp.ALLOCATE, dp.AllocateRequest(), timeout_s=0.01)
    assert caught.value.status is Status.DEADLINE_EXCEEDED
    await stage.until(f.RST_STREAM, ErrorCode.CANCEL)


async def test_a_second_message_ends_the_call(channel: Channel, stage: Stage) -> None:
    stage.scenes = [head(HEAD) + data(length_prefixed(b"")) + data(length_prefixed(b""))]
    with pytest.raises(RpcError) as caught:
        await channel.unary(dp.ALLOCATE, dp.AllocateRequest())
    assert (caught.value.status, caught.value.message) == (
        Status.INTERNAL,
        "the server answered more than one message",
    )
    await stage.until(f.RST_STREAM, ErrorCode.CANCEL)


async def test_a_long_request_waits_for_the_servers_window(stage: Stage) -> None:
    stage.hello = f.settings({f.INITIAL_WINDOW_SIZE: 10}) + f.frame(f.PING, 0, 0, b"12345678")
    channel = await Channel.connect(stage.path, timeout_s=5)
    request = dp.AllocateRequest((dp.ContainerAllocateRequest(("x" * 1000,)),))
    task = asyncio.create_task(channel.unary(dp.ALLOCATE, request, timeout_s=20))
    await stage.until(f.DATA, 1)
    # The server answers without reading the rest: the outcome counts, and what is left of the request is dropped.
    protocol = channel._link
    protocol.data_received(head(HEAD) + data(BODY) + head(OK, end=True))
    assert await task == dp.AllocateResponse()
    assert not protocol.http.streams
    assert protocol.http.sending.queued_bytes == 0
    await channel.close()


@pytest.mark.parametrize(
    ("hello", "text"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "over the limit"), (b"", "did not answer within 0.05 s")],
    ids=["HTTP/1", "silence"],
)
async def test_only_an_http2_server_will_do(stage: Stage, hello: bytes, text: str) -> None:
    stage.hello = hello
    with pytest.raises(RpcError, match=text) as caught:
        await Channel.connect(stage.path, timeout_s=0.05 if not hello else 5)
    assert caught.value.status is Status.UNAVAILABLE
    await stage.gone.wait()


async def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(RpcError, match=r"cannot connect to .*nobody\.sock: No such file or directory") as caught:
        await Channel.connect(f"{tmp_path}/nobody.sock", timeout_s=1)
    assert caught.value.status is Status.UNAVAILABLE


async def test_connecting_can_be_cancelled(stage: Stage) -> None:
    stage.hello = b""
    task = asyncio.create_task(Channel.connect(stage.path, timeout_s=60))
    await stage.until(f.SETTINGS, 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stage.gone.wait()


async def test_a_connection_that_ends_before_anyone_holds_it_leaves_no_complaint() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    protocol = ClientProtocol(Limits())
    protocol.connection_lost(None)
    del protocol
    gc.collect()
    assert not complaints
