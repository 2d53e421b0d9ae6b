"""Our client against grpcio, an independent gRPC, as the server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as pb
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import encode
from fairlead.wire.rpc import MAX_MESSAGE_BYTES, Channel, Limits, Method, RpcError, Status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", 20),
    ("grpc.max_concurrent_streams_overload_protection", 0),  # else it refuses some streams below its own limit
]
UMBRELLA = "gerät fehlt: 100 % weg\n☂ "
NOWHERE = Method("/v1beta1.DevicePlugin/Nowhere", dp.Empty, dp.Empty)


class Plugin:
    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.time_left_s: float | None = None
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self.listings: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.sent = 0

    async def allocate(self, request: pb.AllocateRequest, context: Any) -> pb.AllocateResponse:
        ids = list(request.container_requests[0].devices_ids)
        self.metadata = dict(context.invocation_metadata() or ())
        self.time_left_s = context.time_remaining()
        if ids == ["fail"]:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, UMBRELLA)
        if ids == ["wait"]:
            self.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
        return pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse(envs={"DEVICES": ",".join(ids)})])

    async def watch(self, _request: object, _context: object) -> AsyncIterator[bytes]:
        self.started.set()
        try:
            while (listing := await self.listings.get()) is not None:
                yield listing
                self.sent += 1
        finally:
            self.ended.set()


@pytest.fixture
async def plugin() -> Plugin:
    return Plugin()


@pytest.fixture
async def server(plugin: Plugin, tmp_path: Path) -> AsyncIterator[grpc.aio.Server]:
    made = grpc.aio.server(options=OPTIONS)
    made.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "v1beta1.DevicePlugin",
                {
                    "Allocate": grpc.unary_unary_rpc_method_handler(
                        plugin.allocate, pb.AllocateRequest.FromString, pb.AllocateResponse.SerializeToString
                    ),
                    "ListAndWatch": grpc.unary_stream_rpc_method_handler(plugin.watch),
                },
            ),
        )
    )
    made.add_insecure_port(f"unix:{tmp_path}/p.sock")
    await made.start()
    yield made
    await made.stop(None)


@pytest.fixture
async def channel(server: grpc.aio.Server, tmp_path: Path) -> AsyncIterator[Channel]:
    made = await Channel.connect(f"{tmp_path}/p.sock", timeout_s=10)
    yield made
    await made.close()
    assert made.closed


def asking(*ids: str) -> dp.AllocateRequest:
    return dp.AllocateRequest((dp.ContainerAllocateRequest(ids),))


async def test_a_unary_call_is_answered(channel: Channel, plugin: Plugin) -> None:
    answer = await channel.unary(dp.ALLOCATE, asking("a", "b"), timeout_s=30)
    assert answer.container_responses[0].envs == {"DEVICES": "a,b"}
    assert plugin.time_left_s is not None
    assert 25 < plugin.time_left_s < 31
    assert plugin.metadata["user-agent"] == "fairlead"


async def test_more_calls_than_streams_wait_their_turn(channel: Channel) -> None:
    answers = await asyncio.gather(*(channel.unary(dp.ALLOCATE, asking(f"id-{i}")) for i in range(200)))
    assert [a.container_responses[0].envs["DEVICES"] for a in answers] == [f"id-{i}" for i in range(200)]


async def test_errors_keep_their_status_and_text(channel: Channel) -> None:
    with pytest.raises(RpcError) as caught:
        await channel.unary(dp.ALLOCATE, asking("fail"))
    assert (caught.value.status, caught.value.message) == (Status.FAILED_PRECONDITION, UMBRELLA)
    with pytest.raises(RpcError) as caught:
        await channel.unary(NOWHERE, dp.Empty())
    assert caught.value.status is Status.UNIMPLEMENTED


async def test_a_deadline_ends_the_call_on_both_sides(channel: Channel, plugin: Plugin) -> None:
    with pytest.raises(RpcError) as caught:
        await channel.unary(dp.ALLOCATE, asking("wait"), timeout_s=0.1)
    assert caught.value.status is Status.DEADLINE_EXCEEDED
    await plugin.ended.wait()


async def test_cancelling_the_task_cancels_the_call(channel: Channel, plugin: Plugin) -> None:
    task = asyncio.create_task(channel.unary(dp.ALLOCATE, asking("wait")))
    await plugin.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await plugin.ended.wait()
    assert not channel.closed


async def test_a_stream_is_read_to_its_end(channel: Channel, plugin: Plugin) -> None:
    for name in ("one", "two"):
        plugin.listings.put_nowait(encode(dp.ListAndWatchResponse((dp.Device(name, dp.HEALTHY),))))
    plugin.listings.put_nowait(None)
    seen = [listing.devices[0].id async for listing in channel.stream(dp.LIST_AND_WATCH, dp.Empty(), timeout_s=30)]
    assert seen == ["one", "two"]


async def test_closing_a_stream_cancels_it(channel: Channel, plugin: Plugin) -> None:
    plugin.listings.put_nowait(encode(dp.ListAndWatchResponse()))
    stream = channel.stream(dp.LIST_AND_WATCH, dp.Empty())
    assert await anext(stream) == dp.ListAndWatchResponse()
    await stream.aclose()
    await plugin.ended.wait()


async def test_a_streams_deadline_ends_it(channel: Channel, plugin: Plugin) -> None:
    stream = channel.stream(dp.LIST_AND_WATCH, dp.Empty(), timeout_s=0.1)
    with pytest.raises(RpcError) as caught:
        await anext(stream)
    assert caught.value.status is Status.DEADLINE_EXCEEDED
    await plugin.ended.wait()


@pytest.mark.parametrize(("extra", "status"), [(0, None), (1, Status.RESOURCE_EXHAUSTED)])
async def test_an_answer_may_have_four_mebibytes_and_no_more(
    channel: Channel, plugin: Plugin, extra: int, status: Status | None
) -> None:
    frame = len(encode(dp.ListAndWatchResponse((dp.Device("x" * 4_000_000),)))) - 4_000_000
    listing = encode(dp.ListAndWatchResponse((dp.Device("x" * (MAX_MESSAGE_BYTES - frame + extra)),)))
    assert len(listing) == MAX_MESSAGE_BYTES + extra
    plugin.listings.put_nowait(listing)
    stream = channel.stream(dp.LIST_AND_WATCH, dp.Empty())
    if status is None:
        assert len((await anext(stream)).devices) == 1
    else:
        with pytest.raises(RpcError) as caught:
            await anext(stream)
        assert caught.value.status is status
    await stream.aclose()


async def test_a_slow_reader_holds_the_server_back(server: grpc.aio.Server, plugin: Plugin, tmp_path: Path) -> None:
    listing = encode(dp.ListAndWatchResponse((dp.Device("x" * 100_000),)))
    for _ in range(200):
        plugin.listings.put_nowait(listing)
    plugin.listings.put_nowait(None)
    limits = Limits(stream_window_bytes=65_535, connection_window_bytes=65_535, unread_messages=2)
    channel = await Channel.connect(f"{tmp_path}/p.sock", timeout_s=10, limits=limits)
    stream = channel.stream(dp.LIST_AND_WATCH, dp.Empty())
    await anext(stream)
    # Another call goes through while the stream waits, and the server has not been let run ahead by much.
    await channel.unary(dp.ALLOCATE, asking("a"))
    assert plugin.sent < 100
    assert len([listing async for listing in stream]) == 199
    await channel.close()


async def test_a_server_that_stops_is_unavailable(channel: Channel, server: grpc.aio.Server, plugin: Plugin) -> None:
    task = asyncio.create_task(channel.unary(dp.ALLOCATE, asking("wait")))
    await plugin.started.wait()
    await server.stop(None)
    with pytest.raises(RpcError) as caught:
        await task
    assert caught.value.status in {Status.UNAVAILABLE, Status.CANCELLED}
    with pytest.raises(RpcError) as caught:
        await channel.unary(dp.ALLOCATE, asking("a"))
    assert caught.value.status is Status.UNAVAILABLE
    assert channel.closed
