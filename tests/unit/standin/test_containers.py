"""Starting containers: run options, PreStartContainer, restarts."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from tests.unit.standin.sample import RESOURCE, SamplePlugin, device, devices

from fairlead.standin import checkpoint
from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.poddevices import merge
from fairlead.testing import DeviceNode, FakeClock, Kubelet, Mount

ONE = {"main": {RESOURCE: 1}}


@pytest_asyncio.fixture
async def starting(kubelet: Kubelet) -> AsyncIterator[SamplePlugin]:
    """A plugin that wants PreStartContainer."""
    options = dp.DevicePluginOptions(pre_start_required=True)
    async with SamplePlugin(kubelet.plugin_dir, devices("a", "b"), options=options) as running:
        await running.register()
        await kubelet.wait_for_allocatable(RESOURCE, 2)
        yield running


def test_where_answers_disagree_the_first_one_stands() -> None:
    first = dp.ContainerAllocateResponse(
        envs={"A": "1"},
        mounts=[dp.Mount(container_path="/m", host_path="/1", read_only=True)],
        devices=[dp.DeviceSpec(container_path="/dev/x", host_path="/dev/1", permissions="rw")],
        annotations={"n": "1"},
        cdi_devices=[dp.CDIDevice(name="v/c=1"), dp.CDIDevice(name="v/c=2")],
    )
    second = dp.ContainerAllocateResponse(
        envs={"A": "2", "B": "2"},
        mounts=[dp.Mount(container_path="/m", host_path="/2")],
        devices=[dp.DeviceSpec(container_path="/dev/x", host_path="/dev/2", permissions="r")],
        annotations={"n": "2", "o": "2"},
        cdi_devices=[dp.CDIDevice(name="v/c=2"), dp.CDIDevice(name="v/c=3")],
    )
    merged = merge([first, second])
    assert merged.env == {"A": "1", "B": "2"}
    assert merged.mounts == {"/m": Mount("/m", "/1", read_only=True)}
    assert merged.nodes == {"/dev/x": DeviceNode("/dev/x", "/dev/1", "rw")}
    assert merged.annotations == {"n": "1", "o": "2"}
    assert merged.cdi == ("v/c=1", "v/c=2", "v/c=3")


async def test_a_container_gets_everything_the_plugin_answered(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    plugin.answer = lambda ids: dp.ContainerAllocateResponse(
        envs={"CDI_DEVICE": f"CDI-{ids[0]}"},
        cdi_devices=[dp.CDIDevice(name=f"example.com/resource=CDI-{ids[0]}")],
        devices=[dp.DeviceSpec(container_path="/dev/x", host_path=f"/dev/{ids[0]}", permissions="mrw")],
        annotations={"k": "v"},
    )
    main = (await kubelet.run_pod("p", ONE)).containers["main"]
    (held,) = main.devices[RESOURCE]
    assert main.cdi == (f"example.com/resource=CDI-{held}",)
    assert main.env == {"CDI_DEVICE": f"CDI-{held}"}
    assert main.nodes == {"/dev/x": DeviceNode("/dev/x", f"/dev/{held}", "mrw")}
    assert main.annotations == {"k": "v"}


async def test_a_restarted_container_keeps_its_devices_without_another_allocate(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    pod, other = await kubelet.run_pod("p", ONE), await kubelet.run_pod("q", ONE)
    before = dict(pod.containers["main"].env)
    main = await kubelet.restart_container(pod, "main")
    assert (main.starts, main.env) == (2, before)
    assert main.devices != other.containers["main"].devices
    assert len(plugin.made("Allocate")) == 2


async def test_a_container_restarts_on_an_unhealthy_device(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    pod = await kubelet.run_pod("p", ONE)
    plugin.publish(device("Dev-1", "Unhealthy"), device("Dev-2", "Unhealthy"))
    await kubelet.wait_for_allocatable(RESOURCE, 0)
    assert (await kubelet.restart_container(pod, "main")).state == "running"


async def test_a_container_restarts_while_the_plugin_is_away_but_not_after_five_minutes(
    kubelet: Kubelet, plugin: SamplePlugin, fake_clock: FakeClock
) -> None:
    pod = await kubelet.run_pod("p", ONE)
    await plugin.stop()
    await kubelet.wait_for_allocatable(RESOURCE, 0)
    assert (await kubelet.restart_container(pod, "main")).state == "running"
    fake_clock.advance(301)
    kubelet.node()  # the resource is dropped when the node's status is next computed
    main = await kubelet.restart_container(pod, "main")
    assert (main.state, main.reason) == ("waiting", "CreateContainerConfigError")
    assert main.message == f"endpoint not found in cache for a registered resource: {RESOURCE}"


async def test_pre_start_gets_exactly_the_containers_devices_at_every_start(
    kubelet: Kubelet, starting: SamplePlugin
) -> None:
    pod = await kubelet.run_pod("p", {"main": {RESOURCE: 2}})
    await kubelet.restart_container(pod, "main")
    assert [sorted(request.devices_ids) for request in starting.made("PreStartContainer")] == [["a", "b"]] * 2


async def test_a_pre_start_that_fails_keeps_the_container_waiting(kubelet: Kubelet, starting: SamplePlugin) -> None:
    starting.fail["PreStartContainer"] = "cold"
    pod = await kubelet.run_pod("p", ONE)
    main = pod.containers["main"]
    assert (pod.phase, main.state, main.reason) == ("Pending", "waiting", "CreateContainerConfigError")
    assert main.message == (
        "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = cold"
    )
    starting.fail.clear()
    await kubelet.restart_container(pod, "main")
    assert pod.phase == "Running"


async def test_a_pod_that_ran_stays_running_when_its_container_cannot_start_again(
    kubelet: Kubelet, starting: SamplePlugin
) -> None:
    pod = await kubelet.run_pod("p", ONE)
    starting.fail["PreStartContainer"] = "cold"
    main = await kubelet.restart_container(pod, "main")
    assert (pod.phase, main.state, main.reason) == ("Running", "waiting", "CreateContainerConfigError")


async def test_a_pod_is_pending_until_each_container_was_started_once(kubelet: Kubelet, starting: SamplePlugin) -> None:
    starting.fail["PreStartContainer"] = "cold"
    pod = await kubelet.run_pod("p", {"plain": {}, **ONE})
    assert (pod.phase, pod.containers["plain"].state) == ("Pending", "running")


async def test_a_container_that_could_not_be_created_is_tried_again(
    kubelet: Kubelet, starting: SamplePlugin, fake_clock: FakeClock
) -> None:
    starting.fail["PreStartContainer"] = "cold"
    pod = await kubelet.run_pod("p", ONE, init={"first": {RESOURCE: 1}})
    assert pod.containers["first"].reason == "CreateContainerConfigError"
    assert pod.containers["main"].reason == "PodInitializing"
    await fake_clock.wait_for_sleepers()
    fake_clock.advance(10)
    await kubelet.wait_for(lambda: sum("cold" in call.error for call in kubelet.calls) == 2)
    await fake_clock.wait_for_sleepers()
    assert pod.phase == "Pending"
    starting.fail.clear()
    fake_clock.advance(10)
    await kubelet.wait_for(lambda: pod.phase == "Running")
    assert [container.starts for container in pod.containers.values()] == [1, 1]


async def test_a_deleted_pod_is_not_tried_again(
    kubelet: Kubelet, starting: SamplePlugin, fake_clock: FakeClock
) -> None:
    starting.fail["PreStartContainer"] = "cold"
    pod = await kubelet.run_pod("p", ONE)
    await fake_clock.wait_for_sleepers()
    await kubelet.delete_pod(pod)
    starting.fail.clear()
    fake_clock.advance(10)
    await kubelet.run_pod("q", ONE)
    assert len(starting.made("PreStartContainer")) == 2


async def test_a_pre_start_has_thirty_seconds(kubelet: Kubelet, starting: SamplePlugin, fake_clock: FakeClock) -> None:
    starting.hold["PreStartContainer"] = asyncio.Event()
    running = asyncio.create_task(kubelet.run_pod("p", ONE))
    await starting.wait_for_calls("PreStartContainer")
    fake_clock.advance(29.9)
    assert not running.done()
    fake_clock.advance(0.1)
    assert "code = DeadlineExceeded desc = context deadline exceeded" in (await running).containers["main"].message


async def test_an_init_container_that_cannot_start_holds_back_the_rest(
    kubelet: Kubelet, starting: SamplePlugin
) -> None:
    starting.fail["PreStartContainer"] = "cold"
    pod = await kubelet.run_pod("p", {"main": {}}, init={"first": {RESOURCE: 1}})
    assert pod.containers["first"].reason == "CreateContainerConfigError"
    assert pod.containers["main"].starts == 0


async def test_a_container_whose_devices_were_forgotten_is_allocated_anew(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    pod = await kubelet.run_pod("p", ONE)
    await lose_checkpoint(kubelet, plugin)
    assert kubelet.allocated(RESOURCE) == frozenset()
    main = await kubelet.restart_container(pod, "main")
    assert len(plugin.made("Allocate")) == 2
    assert kubelet.allocated(RESOURCE) == set(main.devices[RESOURCE])


async def test_pre_start_without_remembered_devices_is_an_error(kubelet: Kubelet, starting: SamplePlugin) -> None:
    pod = await kubelet.run_pod("p", ONE)
    await lose_checkpoint(kubelet, starting)
    main = await kubelet.restart_container(pod, "main")
    assert main.message == (
        f"no devices found allocated in local cache for pod {pod.uid}, container main, resource {RESOURCE}"
    )


async def test_pre_start_fails_while_the_plugin_is_away(kubelet: Kubelet, starting: SamplePlugin) -> None:
    pod = await kubelet.run_pod("p", ONE)
    await starting.stop()
    await kubelet.wait_for_allocatable(RESOURCE, 0)
    main = await kubelet.restart_container(pod, "main")
    assert main.reason == "CreateContainerConfigError"
    assert main.message.endswith(" has been stopped")


async def lose_checkpoint(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    """Restart without memory of pods; their containers ran on."""
    await kubelet.stop()
    (kubelet.plugin_dir / checkpoint.NAME).unlink()
    await kubelet.start()
    await plugin.serve()
    await plugin.register()
    await kubelet.wait_for(lambda: len(kubelet.devices(RESOURCE)) == 2)
