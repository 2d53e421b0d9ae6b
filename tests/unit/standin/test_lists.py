"""What the kubelet makes of ListAndWatch, up to the node's numbers and the pod's status."""

from tests.unit.standin.sample import RESOURCE, SamplePlugin, device, devices

from fairlead.testing import FakeClock, Kubelet, Node


async def wait_for_numbers(kubelet: Kubelet, allocatable: int, capacity: int) -> None:
    await kubelet.wait_for(lambda: kubelet.node() == Node({RESOURCE: capacity}, {RESOURCE: allocatable}))


async def test_health_comes_and_goes(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    healths = [("Healthy",) * 4, ("Unhealthy", "Healthy", "Healthy", "Healthy"), ("Healthy",) * 4]
    healths += [("Unhealthy", "Unhealthy", "Healthy", "Healthy"), ("Healthy", "Unhealthy", "Healthy", "Healthy")]
    for states in [*healths, ("Healthy",) * 4]:
        plugin.publish(*(device(str(i), state) for i, state in enumerate(states)))
        await wait_for_numbers(kubelet, states.count("Healthy"), 4)


async def test_a_list_that_is_no_message_ends_the_stream(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    plugin.garbage.add("ListAndWatch")
    plugin.publish(device("a"))
    await wait_for_numbers(kubelet, 0, 2)


async def test_a_device_in_use_that_turns_unhealthy_leaves_its_pod_running(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    plugin.publish(device("a"))
    await wait_for_numbers(kubelet, 1, 1)
    pod = await kubelet.run_pod("p", {"main": {RESOURCE: 1}})
    plugin.publish(device("a", "Unhealthy"))
    await wait_for_numbers(kubelet, 0, 1)
    assert pod.phase == "Running"
    await kubelet.delete_pod(pod)
    assert kubelet.node() == Node({RESOURCE: 1}, {RESOURCE: 0})


async def test_a_stream_that_fails_at_once_is_never_opened_again(kubelet: Kubelet, fake_clock: FakeClock) -> None:
    async with SamplePlugin(kubelet.plugin_dir, devices("a")) as plugin:
        plugin.fail["ListAndWatch"] = "no list"
        await plugin.register()
        await wait_for_numbers(kubelet, 0, 0)
        fake_clock.advance(60)
        assert [name for name, _ in plugin.calls] == ["GetDevicePluginOptions", "ListAndWatch"]
        assert kubelet.calls[-1].error == "rpc error: code = Unknown desc = no list"


async def test_a_stream_that_ends_takes_the_devices_and_after_five_minutes_the_resource(
    kubelet: Kubelet, plugin: SamplePlugin, fake_clock: FakeClock
) -> None:
    plugin.end_streams()
    await wait_for_numbers(kubelet, 0, 2)
    fake_clock.advance(300)
    assert kubelet.node() == Node({RESOURCE: 2}, {RESOURCE: 0})
    fake_clock.advance(0.001)
    assert kubelet.node() == Node({RESOURCE: 0}, {RESOURCE: 0})
    assert len(plugin.made("ListAndWatch")) == 1
    assert kubelet.devices(RESOURCE) == {}


async def test_a_plugin_that_dies_takes_the_devices_and_one_that_returns_brings_them_back(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    await plugin.stop()
    await wait_for_numbers(kubelet, 0, 2)
    async with SamplePlugin(kubelet.plugin_dir, devices("Dev-1", "Dev-2"), name="again.sock") as again:
        await again.register()
        await wait_for_numbers(kubelet, 2, 2)


async def test_a_list_over_four_mebibytes_ends_the_stream(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    plugin.publish(*(device(f"{i:060}") for i in range(65_000)))
    await wait_for_numbers(kubelet, 0, 2)
    assert "ResourceExhausted" in kubelet.calls[-1].error
    pod = await kubelet.run_pod("p", {"main": {RESOURCE: 1}})
    assert "no healthy devices present" in pod.message


async def test_a_list_just_under_four_mebibytes_is_taken(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    plugin.publish(*(device(f"{i:060}") for i in range(55_000)))
    await wait_for_numbers(kubelet, 55_000, 55_000)


async def test_losing_the_socket_file_alone_goes_unnoticed(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    kubelet.delete_sockets()
    assert not plugin.path.exists()
    assert (kubelet.plugin_dir / "kubelet.sock").is_socket()
    plugin.publish(device("a"))
    await wait_for_numbers(kubelet, 1, 1)


async def test_a_pods_status_shows_the_health_last_listed(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    plugin.publish(device("a"))
    await wait_for_numbers(kubelet, 1, 1)
    pod = await kubelet.run_pod("p", {"main": {RESOURCE: 1}})
    assert kubelet.allocated_status(pod) == {"main": {RESOURCE: {"a": "Healthy"}}}
    plugin.publish(device("a", "tired"))
    await wait_for_numbers(kubelet, 0, 1)
    assert kubelet.allocated_status(pod) == {"main": {RESOURCE: {"a": "Unhealthy"}}}


async def test_a_pods_status_ignores_a_lost_plugin_and_a_device_no_longer_listed(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    pod = await kubelet.run_pod("p", {"main": {RESOURCE: 1}})
    (held,) = pod.containers["main"].devices[RESOURCE]
    plugin.publish(device("else"))
    await wait_for_numbers(kubelet, 1, 1)
    assert kubelet.allocated_status(pod) == {"main": {RESOURCE: {held: "Healthy"}}}
    await plugin.stop()
    await wait_for_numbers(kubelet, 0, 1)
    assert kubelet.allocated_status(pod) == {"main": {RESOURCE: {held: "Healthy"}}}


async def test_a_pod_stuck_on_its_image_shows_health_too_and_its_sidecar_none(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    pod = await kubelet.run_pod("p", {"main": {RESOURCE: 1}}, sidecars={"side": {RESOURCE: 1}}, start=False)
    assert (pod.phase, pod.containers["main"].reason) == ("Pending", "ImagePullBackOff")
    (held,) = pod.containers["main"].devices[RESOURCE]
    assert kubelet.allocated_status(pod) == {"main": {RESOURCE: {held: "Healthy"}}}
