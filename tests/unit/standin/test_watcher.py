"""The other way in: a socket under plugins_registry."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.unit.standin.sample import RESOURCE, SamplePlugin, devices

from fairlead.standin._gen import pluginregistration_v1_pb2 as reg
from fairlead.testing import FakeClock, Kubelet


def introduced(kubelet: Kubelet, file: str = "reg.sock", **changes: Any) -> SamplePlugin:
    plugin = SamplePlugin(kubelet.registry_dir, devices("a", "b"), name=file)
    fields = {"type": "DevicePlugin", "name": RESOURCE, "supported_versions": ["v1beta1"], **changes}
    plugin.info = reg.PluginInfo(**fields)
    return plugin


async def wait_for_pause(kubelet: Kubelet, clock: FakeClock, after: str = "NotifyRegistrationStatus") -> None:
    """The attempt is over and the kubelet waits before the next one."""

    await kubelet.wait_for(lambda: has_ended(kubelet, after) and clock.sleepers == 1)


def has_ended(kubelet: Kubelet, method: str) -> bool:
    """There were such calls, and none is under way."""
    ended = [call.seconds is not None for call in kubelet.calls if call.method == method]
    return bool(ended) and all(ended)


def summary(kubelet: Kubelet, method: str) -> str:
    return " ".join(call.summary for call in kubelet.calls if call.method == method)


@pytest_asyncio.fixture
async def watched(kubelet: Kubelet) -> AsyncIterator[SamplePlugin]:
    async with introduced(kubelet) as running:
        yield running


async def test_a_socket_that_appears_is_registered_and_told_so(kubelet: Kubelet, watched: SamplePlugin) -> None:
    assert await watched.notified.get() == reg.RegistrationStatus(plugin_registered=True)
    await kubelet.wait_for_allocatable(RESOURCE, 2)
    assert (await kubelet.run_pod("p", {"main": {RESOURCE: 1}})).phase == "Running"


async def test_a_socket_in_a_sub_directory_is_found(kubelet: Kubelet) -> None:
    async with introduced(kubelet, file="deep/er/reg.sock") as plugin:
        assert (await plugin.notified.get()).plugin_registered


async def test_a_socket_that_was_there_before_the_kubelet_is_found(kubelet: Kubelet) -> None:
    await kubelet.stop()
    async with introduced(kubelet) as plugin:
        await kubelet.start()
        assert (await plugin.notified.get()).plugin_registered
        await kubelet.restart()  # no care is needed in the plugin: the directory is not cleaned
        assert (await plugin.notified.get()).plugin_registered
        await kubelet.wait_for_allocatable(RESOURCE, 2)


async def test_the_plugin_itself_may_serve_elsewhere(kubelet: Kubelet) -> None:
    async with (
        SamplePlugin(kubelet.registry_dir.parent, devices("x"), name="far.sock") as far,
        introduced(kubelet, endpoint=str(far.path)) as plugin,
    ):
        assert (await plugin.notified.get()).plugin_registered
        await kubelet.wait_for_allocatable(RESOURCE, 1)
        assert far.made("ListAndWatch")
        assert not plugin.made("ListAndWatch")


async def test_a_socket_that_goes_takes_the_devices_along(kubelet: Kubelet, watched: SamplePlugin) -> None:
    await kubelet.wait_for_allocatable(RESOURCE, 2)
    await watched.notified.get()
    watched.path.unlink()
    await kubelet.wait_for_allocatable(RESOURCE, 0)
    assert kubelet.node().capacity == {RESOURCE: 2}


async def test_a_hidden_socket_is_left_alone(kubelet: Kubelet) -> None:
    async with introduced(kubelet, file=".hidden.sock") as hidden, introduced(kubelet, file="seen.sock") as seen:
        assert (await seen.notified.get()).plugin_registered
        assert hidden.calls == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"supported_versions": ["v1", "v2"]},
            "manager version, v1beta1, is not among plugin supported versions [v1 v2]",
        ),
        ({"name": "gpu"}, 'invalid name of device plugin socket: the ResourceName "gpu" is invalid'),
        ({"type": "CSIPlugin"}, "no handler registered for plugin type: CSIPlugin"),
    ],
)
async def test_a_plugin_that_says_something_wrong_is_told_so(
    kubelet: Kubelet, changes: dict[str, Any], text: str
) -> None:
    async with introduced(kubelet, **changes) as plugin:
        status = await plugin.notified.get()
        assert not status.plugin_registered
        assert status.error.startswith("RegisterPlugin error -- ")
        assert text in status.error


async def test_a_failure_is_tried_again_after_pauses_that_double(kubelet: Kubelet, fake_clock: FakeClock) -> None:
    plugin = introduced(kubelet)
    plugin.fail["GetDevicePluginOptions"] = "not yet"
    async with plugin:
        for pause_s in (0.5, 1.0, 2.0):
            assert "not yet" in (await plugin.notified.get()).error
            await wait_for_pause(kubelet, fake_clock)
            fake_clock.advance(pause_s - 0.01)
            assert fake_clock.sleepers == 1
            fake_clock.advance(0.01)
        plugin.fail.clear()
        assert (await plugin.notified.get()).plugin_registered


async def test_a_get_info_that_hangs_is_given_up_after_a_second(kubelet: Kubelet, fake_clock: FakeClock) -> None:
    plugin = introduced(kubelet)
    plugin.hold["GetInfo"] = asyncio.Event()
    async with plugin:
        await plugin.wait_for_calls("GetInfo")
        fake_clock.advance(1)
        await wait_for_pause(kubelet, fake_clock, after="GetInfo")
        plugin.hold["GetInfo"].set()
        fake_clock.advance(0.5)
        assert (await plugin.notified.get()).plugin_registered


async def test_a_plugin_that_cannot_be_told_is_taken_out_again(kubelet: Kubelet, fake_clock: FakeClock) -> None:
    plugin = introduced(kubelet)
    plugin.fail["NotifyRegistrationStatus"] = "deaf"
    async with plugin:
        await plugin.wait_for_calls("NotifyRegistrationStatus")
        await wait_for_pause(kubelet, fake_clock)
        assert kubelet.node().allocatable.get(RESOURCE, 0) == 0
        plugin.fail.clear()
        fake_clock.advance(0.5)
        assert (await plugin.notified.get()).plugin_registered
        await kubelet.wait_for_allocatable(RESOURCE, 2)


async def test_a_list_that_arrives_after_the_plugin_was_taken_out_does_not_count(
    kubelet: Kubelet, fake_clock: FakeClock
) -> None:
    kubelet.faults.read_delay_s = 0.2
    plugin = introduced(kubelet)
    plugin.fail["NotifyRegistrationStatus"] = "deaf"
    plugin.hold["NotifyRegistrationStatus"] = asyncio.Event()
    async with plugin:
        await kubelet.wait_for(lambda: "lists=1" in summary(kubelet, "ListAndWatch"))
        plugin.hold["NotifyRegistrationStatus"].set()
        await kubelet.wait_for(lambda: fake_clock.sleepers == 2 and has_ended(kubelet, "NotifyRegistrationStatus"))
        fake_clock.advance(0.2)
        await kubelet.wait_for(lambda: has_ended(kubelet, "ListAndWatch"))
        assert kubelet.node().allocatable.get(RESOURCE, 0) == 0
        assert kubelet.node().capacity.get(RESOURCE, 0) == 0


async def test_a_stream_that_ends_is_not_opened_again_while_the_file_stays(
    kubelet: Kubelet, watched: SamplePlugin, fake_clock: FakeClock
) -> None:
    await kubelet.wait_for_allocatable(RESOURCE, 2)
    await watched.notified.get()
    watched.end_streams()
    await kubelet.wait_for_allocatable(RESOURCE, 0)
    fake_clock.advance(200)
    assert len(watched.made("GetInfo")) == 1
    async with introduced(kubelet, file="again.sock") as again:
        assert (await again.notified.get()).plugin_registered
        await kubelet.wait_for_allocatable(RESOURCE, 2)


async def test_a_socket_made_anew_under_the_same_name_is_another_plugin(kubelet: Kubelet) -> None:
    async with introduced(kubelet, file="../one.sock") as one, introduced(kubelet, file="../two.sock") as two:
        two.publish(*devices("c"))
        socket = kubelet.registry_dir / "reg.sock"
        socket.hardlink_to(one.path)
        assert (await one.notified.get()).plugin_registered
        await kubelet.wait_for_allocatable(RESOURCE, 2)
        socket.unlink()
        socket.hardlink_to(two.path)
        assert (await two.notified.get()).plugin_registered
        await kubelet.wait_for(lambda: kubelet.devices(RESOURCE) == {"c": "Healthy"})


async def test_a_change_of_mode_is_not_a_new_socket(kubelet: Kubelet, watched: SamplePlugin) -> None:
    assert (await watched.notified.get()).plugin_registered
    watched.path.chmod(0o600)
    async with introduced(kubelet, file="next.sock", name="example.com/next") as after:
        assert (await after.notified.get()).plugin_registered  # so the directory was looked at again
        assert len(watched.made("GetInfo")) == 1
