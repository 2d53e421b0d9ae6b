from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.unit.standin.sample import RESOURCE, SamplePlugin, device

from fairlead.standin._gen import podresources_v1_pb2 as pr
from fairlead.standin.podresources import Limiter
from fairlead.testing import Kubelet

LIST = ("List", pr.ListPodResourcesRequest(), pr.ListPodResourcesResponse)
ALLOCATABLE = ("GetAllocatableResources", pr.AllocatableResourcesRequest(), pr.AllocatableResourcesResponse)
Shape = dict[str, dict[str, list[tuple[str, tuple[int, ...]]]]]


async def ask(kubelet: Kubelet, method: str, request: Any, answer: Any, version: str = "v1", times: int = 1) -> Any:
    async with grpc.aio.insecure_channel(f"unix:{kubelet.podresources_socket}") as channel:
        call = channel.unary_unary(
            f"/{version}.PodResourcesLister/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        for _ in range(times - 1):
            await call(request)
        return await call(request)


def entries(devices: Any) -> list[tuple[str, tuple[int, ...]]]:
    return sorted((d.device_ids[0], tuple(node.ID for node in d.topology.nodes)) for d in devices)


async def shape(kubelet: Kubelet, version: str = "v1") -> Shape:
    answer = await ask(kubelet, *LIST, version=version)
    return {pod.name: {c.name: entries(c.devices) for c in pod.containers} for pod in answer.pod_resources}


async def test_nothing_is_listed_without_pods(kubelet: Kubelet) -> None:
    assert await shape(kubelet) == {}


async def test_active_pods_are_listed_with_and_without_devices(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    pod = await kubelet.run_pod("with", {"main": {RESOURCE: 1}})
    await kubelet.run_pod("without", {"main": {}, "more": {}})
    (held,) = pod.containers["main"].devices[RESOURCE]
    listed = {"with": {"main": [(held, ())]}, "without": {"main": [], "more": []}}
    assert await shape(kubelet) == listed
    assert await shape(kubelet, "v1alpha1") == listed


async def test_finished_failed_and_deleted_pods_are_absent(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    done = await kubelet.run_pod("done", {"main": {RESOURCE: 1}})
    gone = await kubelet.run_pod("gone", {"main": {RESOURCE: 1}})
    await kubelet.run_pod("failed", {"main": {RESOURCE: 5}})
    kubelet.finish_pod(done)
    await kubelet.delete_pod(gone)
    assert await shape(kubelet) == {}


async def test_listing_gives_back_the_devices_of_inactive_pods(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    first = await kubelet.run_pod("first", {"main": {RESOURCE: 1}})
    await kubelet.run_pod("second", {"main": {}})
    kubelet.finish_pod(first)
    assert len(kubelet.allocated(RESOURCE)) == 1
    await shape(kubelet)
    assert kubelet.allocated(RESOURCE) == frozenset()


async def test_sidecars_come_first_and_plain_init_containers_are_hidden(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    one = {RESOURCE: 1}
    await kubelet.run_pod("p", {"main": one}, init={"first": one}, sidecars={"side": one})
    listed = (await shape(kubelet))["p"]
    assert list(listed) == ["side", "main"]
    assert [len(found) for found in listed.values()] == [1, 1]
    assert listed["side"] != listed["main"]


async def test_there_is_one_entry_per_device_and_numa_node(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    plugin.publish(device("a", "Healthy", 0, 1), device("b"))
    await kubelet.wait_for(lambda: set(kubelet.devices(RESOURCE)) == {"a", "b"})
    await kubelet.run_pod("p", {"main": {RESOURCE: 2}})
    assert (await shape(kubelet))["p"]["main"] == [("a", (0,)), ("a", (1,)), ("b", ())]
    assert (await shape(kubelet, "v1alpha1"))["p"]["main"] == [("a", ()), ("a", ()), ("b", ())]


async def test_a_device_without_topology_leaves_the_field_unset_also_after_a_restart(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    await kubelet.run_pod("p", {"main": {RESOURCE: 1}})

    async def listed() -> Any:
        return (await ask(kubelet, *LIST)).pod_resources[0].containers[0].devices[0]

    before = await listed()
    assert not before.HasField("topology")
    await kubelet.restart()
    assert await listed() == before


async def test_allocatable_is_every_healthy_device_in_use_or_not(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    plugin.publish(device("a", "Healthy", 1), device("b"), device("c", "Unhealthy"))
    await kubelet.wait_for(lambda: set(kubelet.devices(RESOURCE)) == {"a", "b", "c"})
    await kubelet.run_pod("p", {"main": {RESOURCE: 1}})
    answer = await ask(kubelet, *ALLOCATABLE)
    assert entries(answer.devices) == [("a", (1,)), ("b", ())]
    assert {d.resource_name for d in answer.devices} == {RESOURCE}


async def test_one_pod_can_be_asked_for(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    await kubelet.run_pod("p", {"main": {RESOURCE: 2}}, namespace="ns")
    request = pr.GetPodResourcesRequest(pod_name="p", pod_namespace="ns")
    answer = await ask(kubelet, "Get", request, pr.GetPodResourcesResponse)
    assert entries(answer.pod_resources.containers[0].devices) == [("Dev-1", ()), ("Dev-2", ())]


async def test_a_pod_that_is_not_there_is_an_error(kubelet: Kubelet) -> None:
    request = pr.GetPodResourcesRequest(pod_name="p", pod_namespace="ns")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(kubelet, "Get", request, pr.GetPodResourcesResponse)
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    assert caught.value.details() == "pod p in namespace ns not found"


async def test_too_many_questions_are_refused(kubelet_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.standin.process.monotonic", lambda: 5.0)  # no time passes between the questions
    async with Kubelet(kubelet_root) as kubelet:
        await ask(kubelet, *LIST, times=9)
        await ask(kubelet, *ALLOCATABLE)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(kubelet, *LIST)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert caught.value.details() == "rejected by rate limit"


async def test_the_limit_can_be_turned_off(kubelet_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.standin.process.monotonic", lambda: 5.0)
    async with Kubelet(kubelet_root, rate_limit=False) as kubelet:
        await ask(kubelet, *LIST, times=20)


def test_the_limit_is_a_burst_of_ten_that_fills_at_a_hundred_per_second() -> None:
    now_s = 5.0
    limiter = Limiter(lambda: now_s)
    assert [limiter.take() for _ in range(11)] == [True] * 10 + [False]
    now_s += 0.031
    assert [limiter.take() for _ in range(4)] == [True] * 3 + [False]
    now_s += 60
    assert [limiter.take() for _ in range(11)] == [True] * 10 + [False]
