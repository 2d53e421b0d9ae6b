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
from fairlead.wire.rpc import MAX_MESSAGE_BYTES, Channel, Method, RpcError, Status

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


@pytest.mark.parametrize(("extra", "status"), [(0, None), (1, Status.RESOURCE_EXHAUSTED)])
async def test_an_answer_may_have_four_mebibytes_and_no_more(
    channel: Channel, extra: int, status: Status | None
) -> None:
    whole = dp.AllocateResponse((dp.ContainerAllocateResponse(envs={"DEVICES": "x" * 4_000_000}),))
    name = "x" * (MAX_MESSAGE_BYTES - len(encode(whole)) + 4_000_000 + extra)
    if status is None:
        answer = await channel.unary(dp.ALLOCATE, asking(name))
        assert len(encode(answer)) == MAX_MESSAGE_BYTES
    else:
        with pytest.raises(RpcError) as caught:
            await channel.unary(dp.ALLOCATE, asking(name))
        assert caught.value.status is status


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
