"""Two plugins under one name. 1.36.4 gets this wrong; a plugin has to live with it."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
import pytest_asyncio
from tests.unit.standin.sample import RESOURCE, SamplePlugin, devices

from fairlead.testing import Defects, FakeClock, Kubelet


@pytest_asyncio.fixture
async def fixed(kubelet_root: Path, fake_clock: FakeClock) -> AsyncIterator[Kubelet]:
    async with Kubelet(kubelet_root, clock=fake_clock, defects=Defects.fixed()) as running:
        yield running


def ended(kubelet: Kubelet) -> list[bool]:
    """For each ListAndWatch, in order, whether it is over."""
    return [call.seconds is not None for call in kubelet.calls if call.method == "ListAndWatch"]


async def follow_each_other(kubelet: Kubelet, old: SamplePlugin, new: SamplePlugin) -> None:
    await old.register()
    await kubelet.wait_for(lambda: set(kubelet.devices(RESOURCE)) == {"a", "b"})
    await new.register()
    await kubelet.wait_for(lambda: set(kubelet.devices(RESOURCE)) == {"c"})


async def test_the_end_of_an_old_stream_takes_down_the_new_registration(kubelet: Kubelet) -> None:
    old = SamplePlugin(kubelet.plugin_dir, devices("a", "b"), name="old.sock")
    async with old, SamplePlugin(kubelet.plugin_dir, devices("c"), name="new.sock") as new:
        await follow_each_other(kubelet, old, new)
        old.end_streams()
        await kubelet.wait_for_allocatable(RESOURCE, 0)
        assert kubelet.node().capacity == {RESOURCE: 1}
        await kubelet.wait_for(lambda: all(ended(kubelet)))  # the new connection is closed as well
        # It stays so until someone registers again.
        await new.register()
        await kubelet.wait_for_allocatable(RESOURCE, 1)


async def test_without_the_defect_an_old_stream_is_not_heard_and_its_end_is_harmless(fixed: Kubelet) -> None:
    old = SamplePlugin(fixed.plugin_dir, devices("a", "b"), name="old.sock")
    async with old, SamplePlugin(fixed.plugin_dir, devices("c"), name="new.sock") as new:
        await follow_each_other(fixed, old, new)
        old.publish(*devices("a"))
        old.end_streams()
        await fixed.wait_for(lambda: ended(fixed)[0])
        assert fixed.devices(RESOURCE) == {"c": "Healthy"}
        new.publish(*devices("c", "d"))
        await fixed.wait_for_allocatable(RESOURCE, 2)


async def test_both_streams_feed_the_resource_and_the_last_message_wins(kubelet: Kubelet) -> None:
    old = SamplePlugin(kubelet.plugin_dir, devices("a", "b"), name="old.sock")
    async with old, SamplePlugin(kubelet.plugin_dir, devices("c"), name="new.sock") as new:
        await follow_each_other(kubelet, old, new)
        old.publish(*devices("a"))
        await kubelet.wait_for(lambda: set(kubelet.devices(RESOURCE)) == {"a"})


async def test_a_failed_attempt_makes_the_kubelet_blind_to_the_older_plugins_death(kubelet: Kubelet) -> None:
    old = SamplePlugin(kubelet.plugin_dir, devices("a", "b"), name="old.sock")
    async with old, SamplePlugin(kubelet.plugin_dir, devices("c"), name="new.sock") as new:
        await old.register()
        await kubelet.wait_for_allocatable(RESOURCE, 2)
        new.fail["GetDevicePluginOptions"] = "no"
        with pytest.raises(grpc.aio.AioRpcError):
            await new.register()
        await old.stop()
        await kubelet.wait_for(lambda: ended(kubelet)[0])
        assert kubelet.node().allocatable == {RESOURCE: 2}
        pod = await kubelet.run_pod("p", {"main": {RESOURCE: 1}})
        # As Go's library puts it.
        assert (
            'rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: '
            f'dial unix {old.path}: connect: no such file or directory"' in pod.message
        )


async def test_without_the_defect_the_older_plugins_death_is_seen(fixed: Kubelet) -> None:
    old = SamplePlugin(fixed.plugin_dir, devices("a", "b"), name="old.sock")
    async with old, SamplePlugin(fixed.plugin_dir, devices("c"), name="new.sock") as new:
        await old.register()
        await fixed.wait_for_allocatable(RESOURCE, 2)
        new.fail["GetDevicePluginOptions"] = "no"
        with pytest.raises(grpc.aio.AioRpcError):
            await new.register()
        await old.stop()
        await fixed.wait_for_allocatable(RESOURCE, 0)
