"""Our client against grpc-go servers: a kubelet's registration and a plugin's service."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.interop.go_kubelet import GoKubelet
from tests.toolchain import build_or_skip

from fairlead.wire import deviceplugin as dp
from fairlead.wire.method import Method
from fairlead.wire.rpc import Call, Channel, RpcError, Server, Status
from fairlead.wire.unix import listen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = [pytest.mark.go, pytest.mark.timeout(30, func_only=True)]  # a cold build, in a fixture, may take longer

R = "example.com/thing"


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build_or_skip("kubeletclient")
    build_or_skip("emptyplugin")


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as path:  # a socket's path must be short
        yield Path(path)


@pytest.fixture
async def kubelet(home: Path) -> AsyncIterator[GoKubelet]:
    async with GoKubelet(build_or_skip("kubeletclient"), home) as kubelet:
        await kubelet.ask("listen")
        yield kubelet


@contextlib.asynccontextmanager
async def plugin(home: Path, kubelet: GoKubelet, devices: int = 8) -> AsyncIterator[asyncio.subprocess.Process]:
    """The Go plugin, running and registered."""
    process = await asyncio.create_subprocess_exec(
        build_or_skip("emptyplugin"), "--dir", home, "--endpoint", "go.sock", "--resource", R, "--devices", str(devices)
    )
    try:
        await kubelet.ask("registered", resource=R)
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Channel]:
    channel = await Channel.connect(str(path), timeout_s=5)
    try:
        yield channel
    finally:
        await channel.close()


def registration(endpoint: str, version: str = dp.VERSION, resource: str = R) -> dp.RegisterRequest:
    return dp.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource)


async def test_registering_lets_the_kubelet_call_back_before_it_answers(home: Path, kubelet: GoKubelet) -> None:
    def options(request: dp.Empty, call: Call) -> dp.DevicePluginOptions:
        return dp.DevicePluginOptions()

    async def list_and_watch(request: dp.Empty, call: Call) -> AsyncIterator[dp.ListAndWatchResponse]:
        yield dp.ListAndWatchResponse(devices=(dp.Device(id="a", health=dp.HEALTHY),))
        await asyncio.Event().wait()

    server = Server({dp.GET_OPTIONS: options, dp.LIST_AND_WATCH: list_and_watch})
    await server.start(listen(home / "ours.sock"))
    async with connected(home / "kubelet.sock") as channel:
        assert await channel.unary(dp.REGISTER, registration("ours.sock"), timeout_s=10) == dp.Empty()
    listed = await kubelet.ask("listed", resource=R)
    assert (listed["devices"], listed["healthy"]) == (1, 1)
    await server.stop(0)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (
            registration("a.sock", version="v1alpha"),
            'requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]',
        ),
        (registration("a.sock", resource="nodomain"), 'the ResourceName "nodomain" is invalid'),
    ],
)
async def test_a_refusal_arrives_with_the_kubelets_words(
    home: Path, kubelet: GoKubelet, request_: dp.RegisterRequest, text: str
) -> None:
    async with connected(home / "kubelet.sock") as channel:
        with pytest.raises(RpcError) as caught:
            await channel.unary(dp.REGISTER, request_, timeout_s=10)
    assert (caught.value.status, caught.value.message) == (Status.UNKNOWN, text)


async def test_our_deadline_cuts_the_kubelets_dial_short(home: Path, kubelet: GoKubelet) -> None:
    async with connected(home / "kubelet.sock") as channel:
        with pytest.raises(RpcError) as caught:
            await channel.unary(dp.REGISTER, registration("nobody.sock"), timeout_s=0.3)
    assert caught.value.status is Status.DEADLINE_EXCEEDED


async def refusal(channel: Channel) -> Status:
    """The status of a registration that no kubelet accepts."""
    with pytest.raises(RpcError) as caught:
        await channel.unary(dp.REGISTER, registration("a.sock", version="v0"), timeout_s=10)
    return caught.value.status


async def test_a_peer_that_goes_away_finishes_our_call_and_takes_no_other(home: Path, kubelet: GoKubelet) -> None:
    def options(request: dp.Empty, call: Call) -> dp.DevicePluginOptions:
        return dp.DevicePluginOptions()

    async with connected(home / "kubelet.sock") as channel:
        # The kubelet dials back for ten seconds; until our server is there, the call is under way.
        waiting = asyncio.create_task(channel.unary(dp.REGISTER, registration("late.sock"), timeout_s=10))
        assert (
            await refusal(channel) is Status.UNKNOWN
        )  # came after the other on the wire: that one is with the kubelet
        await kubelet.ask("drain")
        while await refusal(channel) is Status.UNKNOWN:
            pass  # GOAWAY is on its way
        assert await refusal(channel) is Status.UNAVAILABLE
        server = Server({dp.GET_OPTIONS: options})
        await server.start(listen(home / "late.sock"))
        assert await waiting == dp.Empty()
        await server.stop(0)


async def test_nobody_listening_is_unavailable(home: Path) -> None:
    with pytest.raises(RpcError) as caught:
        await Channel.connect(str(home / "kubelet.sock"), timeout_s=1)
    assert caught.value.status is Status.UNAVAILABLE


async def test_calls_to_a_go_plugin(home: Path, kubelet: GoKubelet) -> None:
    async with plugin(home, kubelet), connected(home / "go.sock") as channel:
        options = await channel.unary(dp.GET_OPTIONS, dp.Empty(), timeout_s=5)
        assert options == dp.DevicePluginOptions(get_preferred_allocation_available=True)
        ask = dp.PreferredAllocationRequest(
            container_requests=(
                dp.ContainerPreferredAllocationRequest(available_ids=("x", "y", "z"), allocation_size=2),
            )
        )
        preferred = await channel.unary(dp.GET_PREFERRED_ALLOCATION, ask, timeout_s=5)
        assert preferred.container_responses[0].device_ids == ("x", "y")
        answers = await asyncio.gather(*(allocate(channel, f"dev-{index}") for index in range(300)))
        assert answers == [{"VISIBLE_DEVICES": f"dev-{index}"} for index in range(300)]


async def allocate(channel: Channel, device: str) -> dict[str, str]:
    ask = dp.AllocateRequest(container_requests=(dp.ContainerAllocateRequest(device_ids=(device,)),))
    answer = await channel.unary(dp.ALLOCATE, ask, timeout_s=10)
    return dict(answer.container_responses[0].envs)


async def test_a_method_the_go_plugin_lacks_is_unimplemented(home: Path, kubelet: GoKubelet) -> None:
    missing = Method("/v1beta1.DevicePlugin/NoSuchMethod", dp.Empty, dp.Empty)
    async with plugin(home, kubelet), connected(home / "go.sock") as channel:
        with pytest.raises(RpcError) as caught:
            await channel.unary(missing, dp.Empty(), timeout_s=5)
    assert caught.value.status is Status.UNIMPLEMENTED


async def test_after_the_end_of_the_peer_calls_are_refused(home: Path, kubelet: GoKubelet) -> None:
    async with plugin(home, kubelet) as process, connected(home / "go.sock") as channel:
        process.kill()
        with pytest.raises(RpcError) as refused:
            await allocate(channel, "a")
        assert refused.value.status is Status.UNAVAILABLE
        assert channel.closed
