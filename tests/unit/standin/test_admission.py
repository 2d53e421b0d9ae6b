import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.unit.standin.sample import RESOURCE, SamplePlugin, device, devices

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.testing import Defects, FakeClock, Kubelet, KubeletPanicked, Pod

OTHER = "example.com/other"


def one(count: int = 1) -> dict[str, dict[str, int]]:
    return {"main": {RESOURCE: count}}


def held(pod: Pod, container: str = "main", resource: str = RESOURCE) -> set[str]:
    return set(pod.containers[container].devices.get(resource, ()))


def refused(pod: Pod) -> str:
    """The kubelet's reason, without the frame it puts around it."""
    assert (pod.phase, pod.reason) == ("Failed", "UnexpectedAdmissionError")
    head, tail = "Pod was rejected: Allocate failed due to ", ", which is unexpected"
    assert pod.message.startswith(head)
    assert pod.message.endswith(tail)
    return pod.message.removeprefix(head).removesuffix(tail)


@pytest_asyncio.fixture
async def preferring(kubelet: Kubelet) -> AsyncIterator[SamplePlugin]:
    options = dp.DevicePluginOptions(get_preferred_allocation_available=True)
    async with SamplePlugin(kubelet.plugin_dir, devices("a", "b", "c", "d"), options=options) as running:
        await running.register()
        await kubelet.wait_for_allocatable(RESOURCE, 4)
        yield running


async def test_a_pod_gets_what_it_asked_for(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    pod = await kubelet.run_pod("p", one(2))
    assert pod.phase == "Running"
    assert held(pod) == {"Dev-1", "Dev-2"}
    assert pod.containers["main"].env == {"IDS": "Dev-1,Dev-2"}
    assert set(pod.containers["main"].mounts) == {"/tmp/Dev-1", "/tmp/Dev-2"}


async def test_there_is_one_allocate_call_per_container_and_resource(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    async with SamplePlugin(kubelet.plugin_dir, devices("x"), name="o.sock", resource=OTHER) as other:
        await other.register()
        await kubelet.wait_for_allocatable(OTHER, 1)
        await kubelet.run_pod("p", {"one": {RESOURCE: 1, OTHER: 1}, "two": {RESOURCE: 1}})
        requests = plugin.made("Allocate")
        assert [len(request.container_requests) for request in requests] == [1, 1]
        assert len(other.made("Allocate")) == 1


async def test_choice_and_order_are_random_but_follow_the_seed(kubelet_root: Path) -> None:
    async def choose(seed: int, directory: str = "x") -> list[str]:
        async with (
            Kubelet(kubelet_root / f"{seed}{directory}", seed=seed) as kubelet,
            SamplePlugin(kubelet.plugin_dir, devices(*"abcdefgh")) as plugin,
        ):
            await plugin.register()
            await kubelet.wait_for_allocatable(RESOURCE, 8)
            await kubelet.run_pod("p", one(4))
            return list(plugin.made("Allocate")[0].container_requests[0].devices_ids)

    first = await choose(1)
    assert first == await choose(1, "y")
    assert len({tuple(await choose(seed)) for seed in range(2, 6)} | {tuple(first)}) > 1


async def test_a_resource_nobody_registered_is_silently_not_given(kubelet: Kubelet) -> None:
    pod = await kubelet.run_pod("p", {"main": {"example.com/unknown": 1}})
    assert (pod.phase, pod.containers["main"].devices) == ("Running", {})


async def test_too_few_devices(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    await kubelet.run_pod("first", one(1))
    pod = await kubelet.run_pod("second", one(2))
    assert refused(pod) == (f"requested number of devices unavailable for {RESOURCE}. Requested: 2, Available: 1")


async def test_no_healthy_device(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    plugin.publish(device("Dev-1", "Unhealthy"))
    await kubelet.wait_for_allocatable(RESOURCE, 0)
    pod = await kubelet.run_pod("p", one())
    assert refused(pod) == f"no healthy devices present; cannot allocate unhealthy devices {RESOURCE}"
    assert plugin.made("Allocate") == []


async def test_an_allocate_error_is_told_as_it_came_and_frees_the_devices(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    plugin.fail["Allocate"] = "no way"
    pod = await kubelet.run_pod("p", one(2))
    assert refused(pod) == "rpc error: code = Unknown desc = no way"
    assert kubelet.allocated(RESOURCE) == frozenset()
    plugin.fail.clear()
    assert held(await kubelet.run_pod("q", one(2))) == {"Dev-1", "Dev-2"}


async def test_an_answer_that_is_no_message_fails_the_pod(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    plugin.garbage.add("Allocate")
    assert refused(await kubelet.run_pod("p", one(2))) == (
        "rpc error: code = Internal desc = grpc: failed to unmarshal the received message: "
        "proto: cannot parse invalid wire-format data"
    )
    plugin.garbage.clear()
    assert held(await kubelet.run_pod("q", one(2))) == {"Dev-1", "Dev-2"}


async def test_an_answer_over_four_mebibytes_fails_the_pod_in_gos_words(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    plugin.answer = lambda _: dp.ContainerAllocateResponse(envs={"A": "x" * 5_000_000})
    text = refused(await kubelet.run_pod("p", one(1)))
    assert text.startswith("rpc error: code = ResourceExhausted desc = grpc: received message larger than max (50000")


async def test_an_empty_answer_leaks_the_devices_until_the_next_rebuild(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    answer, plugin.answer = plugin.answer, lambda _: None
    pod = await kubelet.run_pod("p", one(1))
    assert refused(pod) == "no containers return in allocation response "
    plugin.answer = answer
    assert "Requested: 2, Available: 1" in refused(await kubelet.run_pod("q", one(2)))
    plugin.fail["Allocate"] = "rebuild"
    await kubelet.run_pod("r", one(1))
    plugin.fail.clear()
    assert (await kubelet.run_pod("s", one(2))).phase == "Running"


async def test_without_the_defect_an_empty_answer_leaks_nothing(kubelet_root: Path) -> None:
    async with (
        Kubelet(kubelet_root, defects=Defects.fixed()) as kubelet,
        SamplePlugin(kubelet.plugin_dir, devices("a")) as plugin,
    ):
        await plugin.register()
        await kubelet.wait_for_allocatable(RESOURCE, 1)
        plugin.answer = lambda _: None
        await kubelet.run_pod("p", one())
        assert kubelet.allocated(RESOURCE) == frozenset()


async def test_a_failed_second_resource_keeps_the_first_booked_until_the_pod_is_freed(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    async with SamplePlugin(kubelet.plugin_dir, devices("x"), name="o.sock", resource=OTHER) as other:
        await other.register()
        await kubelet.wait_for_allocatable(OTHER, 1)
        other.fail["Allocate"] = "broken"
        # Two containers, because the order of resources inside one container is random.
        await kubelet.run_pod("p", {"one": {RESOURCE: 2}, "two": {OTHER: 1}})
        assert len(kubelet.allocated(RESOURCE)) == 2
        assert held(await kubelet.run_pod("q", one(2))) == {"Dev-1", "Dev-2"}


async def test_the_devices_of_a_finished_pod_are_free_at_the_next_admission(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    first = await kubelet.run_pod("first", one(2))
    kubelet.finish_pod(first)
    assert first.phase == "Succeeded"
    assert len(kubelet.allocated(RESOURCE)) == 2
    assert held(await kubelet.run_pod("second", one(2))) == {"Dev-1", "Dev-2"}


async def test_a_pod_still_being_admitted_is_not_taken_for_stale(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    pod = await kubelet.run_pod("p", {"one": {RESOURCE: 1}, "two": {RESOURCE: 1}})
    assert held(pod, "one") | held(pod, "two") == {"Dev-1", "Dev-2"}


async def test_init_containers_lend_their_devices_to_sidecars_and_apps(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    pod = await kubelet.run_pod("p", one(2), init={"first": {RESOURCE: 1}, "second": {RESOURCE: 2}})
    assert held(pod, "first") < held(pod, "second") == held(pod)
    assert [pod.containers[name].state for name in ("first", "second", "main")] == [
        "terminated",
        "terminated",
        "running",
    ]


async def test_what_an_init_container_leaves_behind_is_for_its_own_pod_only(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    await kubelet.run_pod("p", {"main": {}}, init={"first": {RESOURCE: 1}})
    assert "Requested: 2, Available: 1" in refused(await kubelet.run_pod("q", one(2)))


async def test_init_and_sidecar_share_but_sidecar_and_app_never_do(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    pod = await kubelet.run_pod("p", one(1), init={"first": {RESOURCE: 1}}, sidecars={"side": {RESOURCE: 1}})
    assert held(pod, "first") == held(pod, "side")
    assert held(pod).isdisjoint(held(pod, "side"))


async def test_the_preferred_answer_is_followed(kubelet: Kubelet, preferring: SamplePlugin) -> None:
    preferring.preferred = lambda _: ["b", "d"]
    assert held(await kubelet.run_pod("p", one(2))) == {"b", "d"}
    (request,) = preferring.made("GetPreferredAllocation")
    (asked,) = request.container_requests
    assert set(asked.available_deviceIDs) == {"a", "b", "c", "d"}
    assert (list(asked.must_include_deviceIDs), asked.allocation_size) == ([], 2)


@pytest.mark.parametrize("answer", [None, [], ["b"], ["b", "bogus"], ["b", "b", "bogus", "more"]])
async def test_a_short_or_bogus_preference_is_filled_up(
    kubelet: Kubelet, preferring: SamplePlugin, answer: list[str] | None
) -> None:
    preferring.preferred = lambda _: answer
    chosen = held(await kubelet.run_pod("p", one(3)))
    assert len(chosen) == 3
    assert chosen <= {"a", "b", "c", "d"}
    assert not answer or "b" in chosen


async def test_too_many_preferred_devices_are_cut_down(kubelet: Kubelet, preferring: SamplePlugin) -> None:
    preferring.preferred = lambda _: ["a", "b", "c"]
    chosen = held(await kubelet.run_pod("p", one(1)))
    assert len(chosen) == 1
    assert chosen < {"a", "b", "c"}


async def test_devices_in_use_are_not_offered_nor_taken_from_the_preference(
    kubelet: Kubelet, preferring: SamplePlugin
) -> None:
    preferring.preferred = lambda _: ["a"]
    await kubelet.run_pod("p", one(1))
    assert held(await kubelet.run_pod("q", one(1))) != {"a"}
    assert "a" not in preferring.made("GetPreferredAllocation")[1].container_requests[0].available_deviceIDs


async def test_devices_taken_over_must_be_included_and_count_into_the_size(
    kubelet: Kubelet, preferring: SamplePlugin
) -> None:
    preferring.preferred = lambda request: ["c", "d", *request.must_include_deviceIDs][: request.allocation_size]
    pod = await kubelet.run_pod("p", one(3), init={"first": {RESOURCE: 1}})
    (asked,) = preferring.made("GetPreferredAllocation")[1].container_requests
    assert set(asked.must_include_deviceIDs) == held(pod, "first")
    assert set(asked.available_deviceIDs) == {"a", "b", "c", "d"}
    assert asked.allocation_size == 3
    assert held(pod, "first") < held(pod)


async def test_preference_is_asked_even_when_there_is_nothing_to_choose(
    kubelet: Kubelet, preferring: SamplePlugin
) -> None:
    await kubelet.run_pod("p", one(4))
    assert len(preferring.made("GetPreferredAllocation")) == 1


async def test_a_preference_that_fails_rejects_the_pod(kubelet: Kubelet, preferring: SamplePlugin) -> None:
    preferring.fail["GetPreferredAllocation"] = "torn"
    pod = await kubelet.run_pod("p", one(1))
    assert refused(pod) == (
        "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown desc = torn"
    )


async def test_a_device_that_leaves_the_list_during_allocate_crashes_the_kubelet(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    plugin.hold["Allocate"] = asyncio.Event()
    running = asyncio.create_task(kubelet.run_pod("p", one(2)))
    await plugin.wait_for_calls("Allocate")
    queued = asyncio.create_task(kubelet.run_pod("queued", one(1)))
    plugin.publish(device("Dev-1"))
    await kubelet.wait_for_allocatable(RESOURCE, 1)
    plugin.hold["Allocate"].set()
    with pytest.raises(KubeletPanicked, match=r"'Dev-2' of example\.com/resource left the list"):
        await running
    with pytest.raises(KubeletPanicked):
        await queued
    assert not kubelet.is_running
    with pytest.raises(KubeletPanicked):
        await kubelet.run_pod("q", one(1))
    with pytest.raises(KubeletPanicked):
        await kubelet.wait_for(lambda: False)


async def test_a_device_that_turns_unhealthy_during_allocate_is_given_all_the_same(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    plugin.hold["Allocate"] = asyncio.Event()
    running = asyncio.create_task(kubelet.run_pod("p", one(2)))
    await plugin.wait_for_calls("Allocate")
    plugin.publish(device("Dev-1"), device("Dev-2", "Unhealthy"))
    await kubelet.wait_for_allocatable(RESOURCE, 1)
    plugin.hold["Allocate"].set()
    assert (await running).phase == "Running"


async def test_pods_are_admitted_one_at_a_time(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    plugin.hold["Allocate"] = asyncio.Event()
    first = asyncio.create_task(kubelet.run_pod("first", one(1)))
    second = asyncio.create_task(kubelet.run_pod("second", one(1)))
    await plugin.wait_for_calls("Allocate")
    assert len(plugin.made("Allocate")) == 1
    plugin.hold["Allocate"].set()
    assert held(await first).isdisjoint(held(await second))


async def test_an_expired_resource_is_out_of_stock_for_the_node(
    kubelet: Kubelet, plugin: SamplePlugin, fake_clock: FakeClock
) -> None:
    await plugin.stop()
    await kubelet.wait_for_allocatable(RESOURCE, 0)
    fake_clock.advance(301)
    assert kubelet.node().capacity == {RESOURCE: 0}
    pod = await kubelet.run_pod("p", one(1))
    assert (pod.phase, pod.reason) == ("Failed", f"OutOf{RESOURCE}")
    assert pod.message == (
        f"Pod was rejected: Node didn't have enough resource: {RESOURCE}, requested: 1, used: 0, capacity: 0"
    )


async def test_two_pods_of_one_name_are_refused_with_advice(kubelet: Kubelet) -> None:
    await kubelet.run_pod("p", {"main": {}})
    with pytest.raises(ValueError, match="delete it first"):
        await kubelet.run_pod("p", {"main": {}})
