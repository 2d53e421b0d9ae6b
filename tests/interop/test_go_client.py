"""grpc-go, the kubelet's own gRPC library and stubs, as the client of our server."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.go_kubelet import GoError, GoKubelet
from tests.toolchain import build_or_skip

from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import encode
from fairlead.wire.rpc import Call, RpcError, Server, Status
from fairlead.wire.unix import listen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.go, pytest.mark.timeout(30, func_only=True)]  # a cold build, in a fixture, may take longer

R = "example.com/thing"
FOUR_MIB = 4 << 20


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build_or_skip("kubeletclient")


def encode_list(total_bytes: int) -> dp.ListAndWatchResponse:
    """A list whose message has at most this size, and less than one device below it."""
    one = dp.ListAndWatchResponse(devices=(dp.Device(id=f"{0:050}", health=dp.HEALTHY),))
    count = total_bytes // len(encode(one))
    return dp.ListAndWatchResponse(
        devices=tuple(dp.Device(id=f"{index:050}", health=dp.HEALTHY) for index in range(count))
    )


@dataclass
class Plugin:
    """Handlers that do what a test asks for, chosen by the first device id of the request."""

    lists: list[dp.ListAndWatchResponse] = field(default_factory=lambda: [encode_list(600)])
    response: dp.ContainerAllocateResponse = field(
        default_factory=lambda: dp.ContainerAllocateResponse(envs={"VISIBLE": "0"})
    )
    held: asyncio.Event = field(default_factory=asyncio.Event)  # set when a call is inside "hold"
    release: asyncio.Event = field(default_factory=asyncio.Event)
    unwatch: asyncio.Event = field(default_factory=asyncio.Event)  # ends the list streams
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    streams_ended: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    errors: list[tuple[str, BaseException]] = field(default_factory=list)

    def handlers(self) -> dict[Any, Any]:
        return {
            dp.GET_OPTIONS: self.options,
            dp.LIST_AND_WATCH: self.list_and_watch,
            dp.GET_PREFERRED_ALLOCATION: self.preferred,
            dp.ALLOCATE: self.allocate,
            dp.PRE_START_CONTAINER: self.pre_start,
        }

    def options(self, request: dp.Empty, call: Call) -> dp.DevicePluginOptions:
        return dp.DevicePluginOptions(get_preferred_allocation_available=True)

    async def list_and_watch(self, request: dp.Empty, call: Call) -> AsyncIterator[dp.ListAndWatchResponse]:
        try:
            for each in self.lists:
                yield each
            await self.unwatch.wait()
        finally:
            self.streams_ended.release()

    def preferred(self, request: dp.PreferredAllocationRequest, call: Call) -> dp.PreferredAllocationResponse:
        answers = (
            dp.ContainerPreferredAllocationResponse(
                device_ids=(*each.must_include_ids, *each.available_ids)[: each.allocation_size]
            )
            for each in request.container_requests
        )
        return dp.PreferredAllocationResponse(container_responses=tuple(answers))

    def allocate(self, request: dp.AllocateRequest, call: Call) -> dp.AllocateResponse:
        ids = request.container_requests[0].device_ids
        match ids[0].split(":", 2):
            case ["status", name, text]:
                raise RpcError(Status[name], text)
            case ["crash", text]:
                raise ValueError(text)
            case ["count"]:
                envs = {"COUNT": str(len(ids))}
                return dp.AllocateResponse(container_responses=(dp.ContainerAllocateResponse(envs=envs),))
        return dp.AllocateResponse(container_responses=(self.response,))

    async def pre_start(self, request: dp.PreStartContainerRequest, call: Call) -> dp.PreStartContainerResponse:
        self.held.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return dp.PreStartContainerResponse()


@dataclass
class Scene:
    plugin: Plugin
    server: Server
    kubelet: GoKubelet

    async def ask(self, op: str, **fields: Any) -> Any:
        return await self.kubelet.ask(op, resource=R, **fields)

    async def allocate(self, *ids: str, **fields: Any) -> Any:
        return await self.ask("allocate", ids=list(ids), **fields)


@contextlib.asynccontextmanager
async def playing(plugin: Plugin) -> AsyncIterator[Scene]:
    binary = build_or_skip("kubeletclient")  # in the cache by now
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as home:  # a socket's path must be short
        socket = Path(home, "plugin.sock")
        server = Server(plugin.handlers(), on_error=lambda path, error: plugin.errors.append((path, error)))
        await server.start(listen(socket))
        try:
            async with GoKubelet(binary, Path(home)) as kubelet:
                await kubelet.ask("connect", resource=R, socket=str(socket))
                yield Scene(plugin, server, kubelet)
        finally:
            await server.stop(0)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with playing(Plugin()) as scene:
        yield scene


async def test_every_field_of_an_allocation_arrives() -> None:
    response = dp.ContainerAllocateResponse(
        envs={"VISIBLE": "GPU-0,GPU-1", "EMPTY": "", "SNOW": "schnee ❄"},
        mounts=(dp.Mount(container_path="/in", host_path="/out", read_only=True),),
        devices=(dp.DeviceSpec(container_path="/dev/a", host_path="/dev/b", permissions="rw"),),
        annotations={"example.com/why": "because"},
        cdi_devices=(dp.CDIDevice(name="example.com/gpu=0"),),
    )
    async with playing(Plugin(response=response)) as scene:
        answer = (await scene.allocate("0"))["response"]["containerResponses"]
    assert answer == [
        {
            "envs": {"VISIBLE": "GPU-0,GPU-1", "EMPTY": "", "SNOW": "schnee ❄"},
            "mounts": [{"containerPath": "/in", "hostPath": "/out", "readOnly": True}],
            "devices": [{"containerPath": "/dev/a", "hostPath": "/dev/b", "permissions": "rw"}],
            "annotations": {"example.com/why": "because"},
            "cdiDevices": [{"name": "example.com/gpu=0"}],
        }
    ]


async def test_options_and_preference_are_answered(scene: Scene) -> None:
    assert await scene.ask("options") == {"getPreferredAllocationAvailable": True}
    preferred = await scene.ask("preferred", available=["a", "b", "c"], must=["c"], size=2)
    assert preferred == {"containerResponses": [{"deviceIDs": ["c", "a"]}]}


async def test_numa_nodes_arrive_with_the_list() -> None:
    topology = dp.TopologyInfo(nodes=(dp.NUMANode(id=0), dp.NUMANode(id=1)))
    devices = (
        dp.Device(id="a", health=dp.HEALTHY, topology=topology),
        dp.Device(id="b", health=dp.UNHEALTHY),
    )
    async with playing(Plugin(lists=[dp.ListAndWatchResponse(devices=devices)])) as scene:
        await scene.ask("listed")
        assert await scene.ask("devices") == {
            "devices": [
                {"ID": "a", "health": "Healthy", "topology": {"nodes": [{}, {"ID": "1"}]}},
                {"ID": "b", "health": "Unhealthy"},
            ]
        }


async def test_a_list_just_under_four_mebibytes_arrives_whole() -> None:
    big = encode_list(FOUR_MIB)
    async with playing(Plugin(lists=[big])) as scene:
        listed = await scene.ask("listed")
    assert (listed["devices"], listed["bytes"]) == (len(big.devices), len(encode(big)))
    assert listed["bytes"] > FOUR_MIB - 100


async def test_a_list_over_four_mebibytes_ends_the_stream_and_nothing_else() -> None:
    async with playing(Plugin(lists=[encode_list(FOUR_MIB + 200)])) as scene:
        with pytest.raises(GoError) as caught:
            await scene.ask("listed")
        assert caught.value.code == "ResourceExhausted"
        await scene.plugin.streams_ended.acquire()  # our side was told


async def test_many_frames_arrive_in_order() -> None:
    lists = [encode_list(100 * index) for index in range(1, 200)]
    async with playing(Plugin(lists=lists)) as scene:
        listed = await scene.ask("listed", frames=len(lists))
    assert (listed["frames"], listed["devices"]) == (len(lists), len(lists[-1].devices))


async def test_every_stream_gets_the_whole_list() -> None:
    big = encode_list(1 << 20)
    async with playing(Plugin(lists=[big])) as scene:
        seen = await asyncio.gather(*(scene.ask("watch") for _ in range(5)))
    assert [each["devices"] for each in seen] == [len(big.devices)] * 5


async def test_calls_are_answered_while_a_large_list_is_on_its_way() -> None:
    async with playing(Plugin(lists=[encode_list(FOUR_MIB)] * 5)) as scene:
        watching = asyncio.create_task(scene.ask("watch", frames=5))
        done = await scene.allocate("0", count=200)
        assert done["spread"]["errors"] == 0
        assert (await watching)["frames"] == 5


async def test_a_stream_the_client_cancels_ends_our_generator(scene: Scene) -> None:
    await scene.ask("watch")  # reads one frame and cancels
    await scene.plugin.streams_ended.acquire()
    assert (await scene.allocate("0"))["spread"]["count"] == 1


async def test_a_stream_ends_at_its_deadline(scene: Scene) -> None:
    with pytest.raises(GoError) as caught:
        await scene.ask("watch", frames=2, deadline_s=0.1)
    assert caught.value.code == "DeadlineExceeded"
    await scene.plugin.streams_ended.acquire()


async def test_a_deadline_reaches_the_handler_and_ends_it(scene: Scene) -> None:
    with pytest.raises(GoError) as caught:
        await scene.ask("prestart", ids=["0"], deadline_s=0.2)
    assert caught.value.code == "DeadlineExceeded"
    await scene.plugin.cancelled.wait()


async def test_a_cancelled_call_cancels_its_handler(scene: Scene) -> None:
    with pytest.raises(GoError) as caught:
        await scene.ask("prestart", ids=["0"], cancel_s=0.1)
    assert caught.value.code == "Canceled"
    await scene.plugin.cancelled.wait()
    assert (await scene.allocate("0"))["spread"]["count"] == 1


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("INVALID_ARGUMENT", "InvalidArgument"),
        ("NOT_FOUND", "NotFound"),
        ("RESOURCE_EXHAUSTED", "ResourceExhausted"),
        ("FAILED_PRECONDITION", "FailedPrecondition"),
        ("INTERNAL", "Internal"),
        ("UNAVAILABLE", "Unavailable"),
        ("UNAUTHENTICATED", "Unauthenticated"),
    ],
)
async def test_a_status_and_its_message_arrive(scene: Scene, status: str, code: str) -> None:
    text = "device GPU-7 is 100% gone:\n«Überhitzung»"
    with pytest.raises(GoError) as caught:
        await scene.allocate(f"status:{status}:{text}")
    assert (caught.value.code, caught.value.message) == (code, text)


async def test_a_crash_in_a_handler_is_unknown_with_its_text_only(scene: Scene) -> None:
    with pytest.raises(GoError) as caught:
        await scene.allocate("crash:the roof fell in")
    assert (caught.value.code, caught.value.message) == ("Unknown", "the roof fell in")
    [(path, error)] = scene.plugin.errors
    assert path == dp.ALLOCATE.path
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("method", ["/v1beta1.DevicePlugin/NoSuchMethod", "/no.such.Service/Method"])
async def test_what_does_not_exist_is_unimplemented(scene: Scene, method: str) -> None:
    with pytest.raises(GoError) as caught:
        await scene.ask("invoke", method=method)
    assert caught.value.code == "Unimplemented"


async def test_a_request_of_megabytes_arrives_whole(scene: Scene) -> None:
    ids = ["count", *(f"{index:060}" for index in range(50_000))]
    answer = await scene.allocate(*ids)
    assert answer["response"]["containerResponses"][0]["envs"] == {"COUNT": "50001"}


async def test_a_request_over_the_limit_is_refused_and_the_connection_lives(scene: Scene) -> None:
    with pytest.raises(GoError) as caught:
        await scene.allocate(*(f"{index:060}" for index in range(80_000)))
    assert caught.value.code == "ResourceExhausted"
    assert (await scene.allocate("0"))["spread"]["count"] == 1
    assert scene.server.connections == 1


@pytest.mark.parametrize("in_flight", [8, 300])  # 300 is more than the streams one connection may have open
async def test_calls_in_flight_are_all_answered(scene: Scene, in_flight: int) -> None:
    flown = await scene.ask("flight", ids=["0"], in_flight=in_flight, count=3000, timeout_s=60)
    assert (flown["count"], flown["errors"]) == (3000, 0)
    assert scene.plugin.errors == []


async def test_stopping_lets_a_call_finish_and_refuses_the_next(scene: Scene) -> None:
    waiting = asyncio.create_task(scene.ask("prestart", ids=["0"]))
    await scene.plugin.held.wait()
    stopping = asyncio.create_task(scene.server.stop(grace_s=30))
    await asyncio.sleep(0)  # stop begins: GOAWAY is on its way while the call is still held
    with pytest.raises(GoError) as refused:
        await scene.allocate("0")
    assert refused.value.code == "Unavailable"
    scene.plugin.release.set()
    await waiting
    assert not stopping.done()  # the list's stream is still open
    scene.plugin.unwatch.set()
    await stopping
    assert scene.server.connections == 0


async def test_stopping_without_patience_ends_what_is_held(scene: Scene) -> None:
    waiting = asyncio.create_task(scene.ask("prestart", ids=["0"]))
    await scene.plugin.held.wait()
    await scene.server.stop(grace_s=0)
    with pytest.raises(GoError):
        await waiting
    assert scene.plugin.cancelled.is_set()
    assert scene.server.connections == 0
