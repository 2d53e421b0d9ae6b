"""grpcio, an independent gRPC, as the client of our server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as pb
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import encode
from fairlead.wire.rpc import MAX_MESSAGE_BYTES, Call, RpcError, Server, Status
from fairlead.wire.unix import listen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LIMITLESS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
UMBRELLA = "gerät fehlt: 100 % weg\n☂ "


class Plugin:
    """Handlers that do what the first device id says."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, BaseException]] = []
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self.go = asyncio.Event()
        self.listings: asyncio.Queue[dp.ListAndWatchResponse | bytes | None] = asyncio.Queue()

    def allocate(self, request: dp.AllocateRequest, call: Call) -> dp.AllocateResponse:
        ids = [device for container in request.container_requests for device in container.device_ids]
        if ids == ["fail"]:
            raise RpcError(Status.FAILED_PRECONDITION, UMBRELLA)
        if ids == ["crash"]:
            raise LookupError("no such device")
        return dp.AllocateResponse(
            tuple(
                dp.ContainerAllocateResponse(envs={"DEVICES": ",".join(container.device_ids)})
                for container in request.container_requests
            )
        )

    async def prepare(self, request: dp.PreStartContainerRequest, call: Call) -> dp.PreStartContainerResponse:
        self.started.set()
        try:
            if request.device_ids == ("fail",):
                raise RpcError(Status.NOT_FOUND)
            await self.go.wait()
        finally:
            self.ended.set()
        return dp.PreStartContainerResponse()

    async def watch(self, _request: dp.Empty, _call: Call) -> AsyncIterator[dp.ListAndWatchResponse | bytes]:
        self.started.set()
        try:
            while (listing := await self.listings.get()) is not None:
                yield listing
        finally:
            self.ended.set()

    def prefer(self, request: dp.PreferredAllocationRequest, _call: Call) -> dp.PreferredAllocationResponse:
        return dp.PreferredAllocationResponse(
            tuple(dp.ContainerPreferredAllocationResponse(c.available_ids[:1]) for c in request.container_requests)
        )


class Kubelet:
    """grpcio's stubs for the methods under test."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        def unary(name: str, request: Any, response: Any) -> Any:
            return channel.unary_unary(
                f"/v1beta1.DevicePlugin/{name}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )

        self.channel = channel
        self.allocate = unary("Allocate", pb.AllocateRequest, pb.AllocateResponse)
        self.prefer = unary("GetPreferredAllocation", pb.PreferredAllocationRequest, pb.PreferredAllocationResponse)
        self.prepare = unary("PreStartContainer", pb.PreStartContainerRequest, pb.PreStartContainerResponse)
        self.nowhere = unary("Nowhere", pb.Empty, pb.Empty)
        self.watch: Any = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=pb.Empty.SerializeToString,
            response_deserializer=pb.ListAndWatchResponse.FromString,
        )
        self.pour: Any = channel.stream_unary(
            "/v1beta1.DevicePlugin/Allocate",
            request_serializer=pb.AllocateRequest.SerializeToString,
            response_deserializer=pb.AllocateResponse.FromString,
        )


@pytest.fixture
async def plugin() -> Plugin:
    return Plugin()


@pytest.fixture
async def server(plugin: Plugin, tmp_path: Path) -> AsyncIterator[Server]:
    made = Server(
        {
            dp.ALLOCATE: plugin.allocate,
            dp.PRE_START_CONTAINER: plugin.prepare,
            dp.LIST_AND_WATCH: plugin.watch,
            dp.GET_PREFERRED_ALLOCATION: plugin.prefer,
        },
        on_error=lambda path, error: plugin.errors.append((path, error)),
    )
    await made.start(listen(tmp_path / "p.sock"))
    yield made
    await made.stop(0)
    assert made.connections == 0
    assert not made.tasks


@pytest.fixture
async def kubelet(server: Server, tmp_path: Path) -> AsyncIterator[Kubelet]:
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/p.sock", options=LIMITLESS) as channel:
        yield Kubelet(channel)


def asking(*ids: str) -> pb.AllocateRequest:
    return pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])


async def outcome(call: Any) -> tuple[grpc.StatusCode, str | None]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


async def test_a_unary_call_is_answered(kubelet: Kubelet) -> None:
    answer = await kubelet.allocate(asking("a", "b"))
    assert [dict(container.envs) for container in answer.container_responses] == [{"DEVICES": "a,b"}]


async def test_many_calls_in_flight_find_their_own_answers(kubelet: Kubelet) -> None:
    answers = await asyncio.gather(*(kubelet.allocate(asking(f"id-{i}")) for i in range(500)))
    assert [a.container_responses[0].envs["DEVICES"] for a in answers] == [f"id-{i}" for i in range(500)]


async def test_errors_keep_their_status_and_text(kubelet: Kubelet, plugin: Plugin) -> None:
    assert await outcome(kubelet.allocate(asking("fail"))) == (grpc.StatusCode.FAILED_PRECONDITION, UMBRELLA)
    assert plugin.errors == []
    assert await outcome(kubelet.allocate(asking("crash"))) == (grpc.StatusCode.UNKNOWN, "no such device")
    assert [(path, type(error)) for path, error in plugin.errors] == [("/v1beta1.DevicePlugin/Allocate", LookupError)]
    answer = await outcome(kubelet.prepare(pb.PreStartContainerRequest(devices_ids=["fail"])))
    assert answer == (grpc.StatusCode.NOT_FOUND, "")
    code, text = await outcome(kubelet.nowhere(pb.Empty()))
    assert (code, text) == (grpc.StatusCode.UNIMPLEMENTED, "unknown method /v1beta1.DevicePlugin/Nowhere")


async def test_a_deadline_cancels_the_handler(kubelet: Kubelet, plugin: Plugin) -> None:
    code, _ = await outcome(kubelet.prepare(pb.PreStartContainerRequest(), timeout=0.1))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    await plugin.ended.wait()


async def test_a_cancelled_call_cancels_the_handler(kubelet: Kubelet, plugin: Plugin) -> None:
    call = kubelet.prepare(pb.PreStartContainerRequest())
    waiting = asyncio.ensure_future(call)
    await plugin.started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await plugin.ended.wait()


async def test_metadata_is_no_hindrance_binary_included(kubelet: Kubelet) -> None:
    answer = await kubelet.allocate(asking("a"), metadata=(("x-pod", "web"), ("x-raw-bin", b"\x00\xff")))
    assert len(answer.container_responses) == 1


async def test_a_stream_carries_lists_as_they_change(kubelet: Kubelet, plugin: Plugin) -> None:
    call = kubelet.watch(pb.Empty())
    for name in ("one", "two"):
        plugin.listings.put_nowait(dp.ListAndWatchResponse((dp.Device(name, dp.HEALTHY),)))
        answer = await call.read()
        assert [device.ID for device in answer.devices] == [name]
    plugin.listings.put_nowait(None)
    assert not isinstance(await call.read(), pb.ListAndWatchResponse)  # grpcio's mark for the end
    assert await call.code() is grpc.StatusCode.OK


async def test_a_stream_may_end_before_it_began(kubelet: Kubelet, plugin: Plugin) -> None:
    plugin.listings.put_nowait(None)
    assert [listing async for listing in kubelet.watch(pb.Empty())] == []


async def test_cancelling_a_stream_closes_the_generator(kubelet: Kubelet, plugin: Plugin) -> None:
    call = kubelet.watch(pb.Empty())
    plugin.listings.put_nowait(dp.ListAndWatchResponse())
    await call.read()
    call.cancel()
    await plugin.ended.wait()


async def test_a_list_of_four_mebibytes_passes_through_small_windows(kubelet: Kubelet, plugin: Plugin) -> None:
    name = "x" * 60
    listing = encode(dp.ListAndWatchResponse(tuple(dp.Device(f"{name}{i}", dp.HEALTHY) for i in range(50_000))))
    assert len(listing) > MAX_MESSAGE_BYTES * 0.9
    plugin.listings.put_nowait(listing)
    answer = await kubelet.watch(pb.Empty()).read()
    assert len(answer.devices) == 50_000


async def test_a_request_may_have_four_mebibytes_and_no_more(kubelet: Kubelet) -> None:
    def request(size: int) -> pb.PreferredAllocationRequest:
        filler = pb.ContainerPreferredAllocationRequest(available_deviceIDs=["first", ""])
        made = pb.PreferredAllocationRequest(container_requests=[filler])
        made.container_requests[0].available_deviceIDs[1] = "x" * (size - made.ByteSize() - 8)
        made.container_requests[0].available_deviceIDs[1] += "x" * (size - made.ByteSize())
        assert made.ByteSize() == size
        return made

    answer = await kubelet.prefer(request(MAX_MESSAGE_BYTES))
    assert list(answer.container_responses[0].deviceIDs) == ["first"]
    code, text = await outcome(kubelet.prefer(request(MAX_MESSAGE_BYTES + 1)))
    assert (code, text) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "the message has 4194305 bytes; at most 4194304 are accepted",
    )
    assert await kubelet.allocate(asking("a"))  # the connection goes on


async def test_a_compressed_request_is_refused(kubelet: Kubelet) -> None:
    code, _ = await outcome(kubelet.allocate(asking("a" * 500), compression=grpc.Compression.Gzip))
    assert code is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("count", [0, 2])
async def test_a_unary_method_takes_exactly_one_message(kubelet: Kubelet, count: int) -> None:
    async def requests() -> AsyncIterator[pb.AllocateRequest]:
        for _ in range(count):
            yield asking("a")

    code, text = await outcome(kubelet.pour(requests()))
    assert (code, text) == (grpc.StatusCode.INTERNAL, "a request is exactly one message")


async def test_stopping_lets_calls_finish(kubelet: Kubelet, plugin: Plugin, server: Server) -> None:
    waiting = asyncio.ensure_future(kubelet.prepare(pb.PreStartContainerRequest()))
    await plugin.started.wait()
    stopping = asyncio.ensure_future(server.stop(grace_s=30))
    await asyncio.sleep(0)
    plugin.go.set()
    assert await waiting == pb.PreStartContainerResponse()
    await stopping
    code, _ = await outcome(kubelet.allocate(asking("a"), wait_for_ready=False))
    assert code is grpc.StatusCode.UNAVAILABLE


async def test_stopping_ends_the_calls_that_do_not_finish(kubelet: Kubelet, plugin: Plugin, server: Server) -> None:
    call = kubelet.watch(pb.Empty())
    plugin.listings.put_nowait(dp.ListAndWatchResponse())
    await call.read()
    await server.stop(grace_s=0.01)
    assert plugin.ended.is_set()
    assert await outcome(call.read()) == (grpc.StatusCode.UNAVAILABLE, "the server is stopping")
    await server.stop()


async def test_a_client_that_vanishes_ends_its_calls(kubelet: Kubelet, plugin: Plugin) -> None:
    call = kubelet.watch(pb.Empty())
    plugin.listings.put_nowait(dp.ListAndWatchResponse())
    await call.read()
    await kubelet.channel.close(grace=None)
    await plugin.ended.wait()
