"""The faults a test can ask for."""

import asyncio

import grpc
import grpc.aio
import pytest
from tests.unit.standin.sample import RESOURCE, SamplePlugin, device, devices

from fairlead.testing import FakeClock, Kubelet


async def test_the_kubelet_may_never_dial(kubelet: Kubelet) -> None:
    kubelet.faults.never_dial = True
    async with SamplePlugin(kubelet.plugin_dir, devices("a")) as plugin:
        await plugin.register()
        assert plugin.calls == []
        assert [call.method for call in kubelet.calls] == ["Register"]


async def test_the_kubelet_may_never_open_the_stream(kubelet: Kubelet) -> None:
    kubelet.faults.never_stream = True
    async with SamplePlugin(kubelet.plugin_dir, devices("a")) as plugin:
        await plugin.register()
        assert [name for name, _ in plugin.calls] == ["GetDevicePluginOptions"]
        kubelet.faults.never_stream = False
        await plugin.register()
        await kubelet.wait_for_allocatable(RESOURCE, 1)


async def test_the_kubelet_may_refuse(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    kubelet.faults.refuse_register = "no room"
    with pytest.raises(grpc.aio.AioRpcError, match="no room"):
        await plugin.register()


async def test_the_kubelet_may_refuse_one_resource_alone(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    kubelet.faults.refuse_register, kubelet.faults.only = "no room", "example.com/other"
    await plugin.register()
    kubelet.faults.only = RESOURCE
    with pytest.raises(grpc.aio.AioRpcError, match="no room"):
        await plugin.register()


async def test_the_kubelet_may_speak_another_version(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    kubelet.faults.version = "v2"
    with pytest.raises(grpc.aio.AioRpcError, match=r'Supported version is \["v2"\]'):
        await plugin.register()


async def test_the_kubelet_may_close_the_stream(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    kubelet.close_stream(RESOURCE)
    await kubelet.wait_for_allocatable(RESOURCE, 0)
    await plugin.register()
    await kubelet.wait_for_allocatable(RESOURCE, 2)


async def test_the_kubelet_may_restart_in_the_middle_of_register(kubelet: Kubelet) -> None:
    async with SamplePlugin(kubelet.plugin_dir, devices("a")) as plugin:
        kubelet.faults.restart_on_register = True
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await plugin.register()
        await kubelet.wait_for(lambda: kubelet.is_running and not plugin.path.exists())
        await plugin.serve()
        await plugin.register()
        await kubelet.wait_for_allocatable(RESOURCE, 1)


async def test_the_kubelet_may_read_slowly(kubelet: Kubelet, plugin: SamplePlugin, fake_clock: FakeClock) -> None:
    kubelet.faults.read_delay_s = 5
    plugin.publish(device("a"))
    await fake_clock.wait_for_sleepers()
    assert len(kubelet.devices(RESOURCE)) == 2
    fake_clock.advance(5)
    await kubelet.wait_for_allocatable(RESOURCE, 1)


async def test_a_pod_caught_in_a_restart_is_admitted_by_the_next_life(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    plugin.hold["Allocate"] = asyncio.Event()
    running = asyncio.create_task(kubelet.run_pod("p", {"main": {RESOURCE: 1}}))
    await plugin.wait_for_calls("Allocate")
    await kubelet.restart(readmit=False)
    pod = await running
    assert pod.phase == "Pending"
    plugin.hold["Allocate"].set()
    await plugin.serve()
    await plugin.register()
    await kubelet.wait_for(lambda: len(kubelet.devices(RESOURCE)) == 2)
    await kubelet.readmit()
    assert pod.containers["main"].state == "running"
