"""Topology hints: with a policy that aligns, the kubelet places by the NUMA nodes that Fairlead tells.

The kubelet sees two NUMA nodes (rig/numa.py). What cannot be shown on such a machine is whether memory is really near.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.node.cluster import Cluster, Pod, shape
from tests.node.daemon import Fairlead, sim
from tests.node.rig import numa, settings
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.places import KUBELET, NODE
from tests.node.rig.steps import NodeMissingError

Make = Callable[[dict[str, Any]], Fairlead]
REFUSED = "TopologyAffinityError"
MEMORY = 16 << 20


@contextmanager
def policy(name: str) -> Iterator[None]:
    """A kubelet with this policy, which gives whole CPUs to those who ask for them."""
    # It refuses to start on what it remembers of another policy.
    states = [KUBELET / "cpu_manager_state", KUBELET / "memory_manager_state"]

    def restart() -> None:
        for state in states:
            state.unlink(missing_ok=True)
        start_kubelet()

    stop_kubelet()
    reserved = str(numa.cpus()[0])
    settings.change_kubelet(topologyManagerPolicy=name, cpuManagerPolicy="static", reservedSystemCPUs=reserved)
    try:
        with numa.split():
            restart()
            yield
            stop_kubelet()
    finally:
        stop_kubelet()
        settings.change_kubelet()
        restart()


@pytest.fixture(scope="module", params=["single-numa-node", "restricted"])
def aligning(request: pytest.FixtureRequest, node: None) -> Iterator[str]:
    try:
        with policy(request.param):
            yield request.param
    except NodeMissingError as missing:
        pytest.skip(str(missing))


def refused(pod: Pod) -> str:
    status = pod.wait_phase("Failed").look()["status"]
    assert status["reason"] == REFUSED
    return str(status["message"])


def start(cluster: Cluster, name: str, asks: dict[str, int]) -> Pod:
    """On the node, whatever the scheduler thinks: the kubelet is to judge."""
    return cluster.start_pod(name, {}, containers=[shape("main", {**asks, "memory": MEMORY})], nodeName=NODE)


@pytest.mark.usefixtures("aligning")
def test_two_devices_of_a_pod_are_on_one_numa_node(cluster: Cluster, fairlead: Make, resource: str):
    fairlead(sim(resource, 4, fleet={"numa": [0, 1, 0, 1]})).start()
    cluster.wait_numbers(resource, 4, 4)
    pods = [start(cluster, f"pair{number}", {resource: 2}).wait_running() for number in range(2)]
    held = [cluster.held(pod)[0] for pod in pods]
    assert sorted(one.numa or () for one in held) == [(0,), (1,)]


@pytest.mark.usefixtures("aligning")
def test_a_pod_that_cannot_be_aligned_is_refused_and_the_next_one_runs(cluster: Cluster, fairlead: Make, resource: str):
    fairlead(sim(resource, 3, fleet={"numa": [0, 1, 1]})).start()
    cluster.wait_numbers(resource, 3, 3)
    # A CPU of its own is on node 1, so this takes a device there: one is left on each node.
    start(cluster, "pinned", {resource: 1, "cpu": 1}).wait_running()
    assert "Topology locality" in refused(start(cluster, "apart", {resource: 2}))
    start(cluster, "single", {resource: 1}).wait_running()


@pytest.mark.usefixtures("aligning")
def test_a_device_is_on_the_numa_node_of_the_pods_own_cpu(cluster: Cluster, fairlead: Make, resource: str):
    # The first CPU is the system's, so the CPU that a pod can have for itself is on node 1.
    fairlead(sim(resource, 2, fleet={"numa": [0, 1]})).start()
    cluster.wait_numbers(resource, 2, 2)
    pod = start(cluster, "pinned", {resource: 1, "cpu": 1}).wait_running()
    assert [one.numa for one in cluster.held(pod)] == [(1,)]
    pod.delete()


@pytest.mark.usefixtures("aligning")
def test_a_pod_whose_device_is_far_from_every_cpu_is_refused(cluster: Cluster, fairlead: Make, resource: str):
    fairlead(sim(resource, 1, fleet={"numa": 0})).start()
    cluster.wait_numbers(resource, 1, 1)
    refused(start(cluster, "far", {resource: 1, "cpu": 1}))
    start(cluster, "shared-cpu", {resource: 1}).wait_running()


def test_devices_that_are_all_apart_go_together_only_where_the_policy_lets_them(
    cluster: Cluster, aligning: str, fairlead: Make, resource: str
):
    fairlead(sim(resource, 2, fleet={"numa": [0, 1]})).start()
    cluster.wait_numbers(resource, 2, 2)
    pod = start(cluster, "both", {resource: 2})
    if aligning == "single-numa-node":
        refused(pod)
    else:  # no set of two could ever be closer
        assert [one.numa for one in cluster.held(pod.wait_running())] == [(0, 1)]


@pytest.mark.usefixtures("aligning")
def test_a_device_on_a_numa_node_that_the_machine_does_not_have_is_never_given(
    cluster: Cluster, fairlead: Make, resource: str
):
    fairlead(sim(resource, 2, fleet={"numa": [1, 7]})).start()
    cluster.wait_numbers(resource, 2, 2)
    assert [one.numa for one in cluster.held(start(cluster, "known", {resource: 1}).wait_running())] == [(1,)]
    refused(start(cluster, "unknown", {resource: 1}))
