"""Topology policies, from the device list to the devices a container gets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.unit.standin.sample import RESOURCE, SamplePlugin, device

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.topology import Policy
from fairlead.testing import Kubelet, Pod

FOUR = [device("a0", "Healthy", 0), device("b0", "Healthy", 0), device("c1", "Healthy", 1), device("d1", "Healthy", 1)]


@asynccontextmanager
async def node(root: Path, policy: Policy, *listed: dp.Device) -> AsyncIterator[tuple[Kubelet, SamplePlugin]]:
    options = dp.DevicePluginOptions(get_preferred_allocation_available=True)
    async with (
        Kubelet(root, topology_policy=policy) as kubelet,
        SamplePlugin(kubelet.plugin_dir, listed, options=options) as plugin,
    ):
        await plugin.register()
        await kubelet.wait_for_allocatable(RESOURCE, len(listed))
        yield kubelet, plugin


def held(pod: Pod) -> set[str]:
    return set(pod.containers["main"].devices[RESOURCE])


async def run(kubelet: Kubelet, name: str, count: int) -> Pod:
    return await kubelet.run_pod(name, {"main": {RESOURCE: count}})


async def test_two_devices_come_from_one_node(kubelet_root: Path) -> None:
    async with node(kubelet_root, "single-numa-node", *FOUR) as (kubelet, plugin):
        first, second = await run(kubelet, "p", 2), await run(kubelet, "q", 2)
        assert sorted([held(first), held(second)], key=min) == [{"a0", "b0"}, {"c1", "d1"}]
        # All aligned devices are needed, so there is nothing to prefer.
        assert plugin.made("GetPreferredAllocation") == []


async def test_only_aligned_devices_are_offered_and_taken(kubelet_root: Path) -> None:
    async with node(kubelet_root, "restricted", *FOUR) as (kubelet, plugin):
        plugin.preferred = lambda _: ["c1", "b0"]
        assert held(await run(kubelet, "p", 1)) == {"b0"}
        (asked,) = plugin.made("GetPreferredAllocation")[0].container_requests
        assert set(asked.available_deviceIDs) == {"a0", "b0"}


async def test_aligned_devices_taken_over_must_be_included_and_the_size_is_the_whole_request(
    kubelet_root: Path,
) -> None:
    listed = [device(name, "Healthy", 0) for name in "abcd"]
    async with node(kubelet_root, "restricted", *listed) as (kubelet, plugin):
        pod = await kubelet.run_pod("p", {"main": {RESOURCE: 2}}, init={"first": {RESOURCE: 1}})
        (asked,) = plugin.made("GetPreferredAllocation")[1].container_requests
        assert set(asked.must_include_deviceIDs) == set(pod.containers["first"].devices[RESOURCE])
        assert set(asked.available_deviceIDs) == set("abcd")
        assert asked.allocation_size == 2


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
async def test_a_request_that_would_span_nodes_needlessly_is_refused(kubelet_root: Path, policy: Policy) -> None:
    async with node(kubelet_root, policy, *FOUR) as (kubelet, _):
        await run(kubelet, "p", 1)
        await run(kubelet, "q", 1)
        third = await run(kubelet, "r", 2)
        assert third.phase == "Running"  # the other node is still whole
        fourth = await run(kubelet, "s", 1)
        assert (fourth.phase, fourth.reason) == ("Failed", "TopologyAffinityError")
        assert fourth.message == "Pod was rejected: Resources cannot be allocated with Topology locality"


async def test_three_of_four_span_nodes_under_restricted_but_not_under_single(kubelet_root: Path) -> None:
    async with node(kubelet_root / "r", "restricted", *FOUR) as (kubelet, _):
        assert (await run(kubelet, "p", 3)).phase == "Running"
    async with node(kubelet_root / "s", "single-numa-node", *FOUR) as (kubelet, _):
        assert (await run(kubelet, "p", 3)).reason == "TopologyAffinityError"


async def test_best_effort_takes_all_aligned_ones_and_asks_about_the_rest(kubelet_root: Path) -> None:
    async with node(kubelet_root, "best-effort", *FOUR, device("e1", "Healthy", 1), device("n")) as (kubelet, plugin):
        plugin.preferred = lambda request: ["e1", "n", *request.must_include_deviceIDs]
        everything = held(await run(kubelet, "p", 5))
        assert len(everything) == 5
        assert everything >= {"a0", "b0", "c1", "d1", "e1"}


async def test_devices_without_topology_are_no_preference(kubelet_root: Path) -> None:
    async with node(kubelet_root, "single-numa-node", device("x"), device("y")) as (kubelet, _):
        assert held(await run(kubelet, "p", 2)) == {"x", "y"}


async def test_an_aligned_pod_is_admitted_again_where_it_was(kubelet_root: Path) -> None:
    async with node(kubelet_root, "restricted", *FOUR) as (kubelet, plugin):
        await run(kubelet, "p", 1)
        pod = await run(kubelet, "q", 2)
        before = held(pod)
        await kubelet.restart(reboot=True, readmit=False)
        await plugin.serve()
        await plugin.register()
        await kubelet.wait_for(lambda: len(kubelet.devices(RESOURCE)) == 4)
        await kubelet.readmit()
        assert (pod.phase, held(pod)) == ("Running", before)
        pod.containers["main"].limits[RESOURCE] = 1
        await kubelet.restart(reboot=True, readmit=False)
        await plugin.serve()
        await plugin.register()
        await kubelet.wait_for(lambda: len(kubelet.devices(RESOURCE)) == 4)
        await kubelet.readmit()
        assert pod.reason == "TopologyAffinityError"


async def test_init_devices_bind_the_app_to_their_node(kubelet_root: Path) -> None:
    async with node(kubelet_root, "single-numa-node", *FOUR) as (kubelet, _):
        pod = await kubelet.run_pod("p", {"main": {RESOURCE: 2}}, init={"first": {RESOURCE: 1}})
        assert set(pod.containers["first"].devices[RESOURCE]) < held(pod)
        assert held(pod) in ({"a0", "b0"}, {"c1", "d1"})


async def test_more_than_eight_nodes_are_refused(kubelet_root: Path) -> None:
    with pytest.raises(ValueError, match="at most 8 NUMA nodes, not 9"):
        Kubelet(kubelet_root, topology_policy="restricted", numa_nodes=range(9))


async def test_an_unknown_policy_is_named(kubelet_root: Path) -> None:
    with pytest.raises(ValueError, match="'strict' is unknown"):
        Kubelet(kubelet_root, topology_policy="strict")  # type: ignore[arg-type]  # that is the mistake under test
