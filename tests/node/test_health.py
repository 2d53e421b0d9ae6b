"""Faults reach the node's numbers and the pod's status, and pass again."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.node.cluster import Cluster, Pod
from tests.node.conftest import Measure
from tests.node.daemon import Fairlead, sim
from tests.node.rig.steps import until

Make = Callable[[dict[str, Any]], Fairlead]
BROKEN = ("code=smoke", "kind=needs-reset")


def health(pod: Pod) -> list[tuple[str, str, str]]:
    told = pod.container().get("allocatedResourcesStatus", ())
    return [(one["name"], entry["resourceID"], entry["health"]) for one in told for entry in one["resources"]]


def test_a_single_device_fails_and_recovers(cluster: Cluster, fairlead: Make, resource: str, measure: Measure):
    daemon = fairlead(sim(resource, 1))
    daemon.start()
    cluster.wait_numbers(resource, 1, 1)
    daemon.order("fail", "0", *BROKEN)
    listed = cluster.wait_offered(resource, 0)
    failed = daemon.wait_fact("unhealthy", device=f"{resource.partition('/')[2]}-0")
    measure("fault → the kubelet has the new list", listed - failed)
    measure("fault → Node allocatable", cluster.wait_numbers(resource, 0, 1) - failed)
    daemon.order("recover", "0")
    cluster.wait_numbers(resource, 1, 1)


def test_a_pod_runs_on_when_its_device_fails(cluster: Cluster, fairlead: Make, resource: str):
    daemon = fairlead(sim(resource, 1))
    daemon.start()
    cluster.wait_numbers(resource, 1, 1)
    pod = cluster.run_pod("stays", {resource: 1})
    instance = pod.container()["containerID"]
    daemon.order("fail", "0", *BROKEN)
    cluster.wait_numbers(resource, 0, 1)
    assert pod.is_ready()
    assert pod.container()["containerID"] == instance
    cluster.remove_pods()
    assert cluster.numbers(resource) == (0, 1)
    daemon.order("recover", "0")
    cluster.wait_numbers(resource, 1, 1)


def test_four_devices_fail_and_recover_one_by_one(cluster: Cluster, fairlead: Make, resource: str):
    daemon = fairlead(sim(resource, 4))
    daemon.start()
    cluster.wait_numbers(resource, 4, 4)
    orders = (("fail", "1", 3), ("recover", "1", 4), ("fail", "2", 3), ("fail", "3", 2), ("recover", "2", 3))
    for order, device, allocatable in (*orders, ("recover", "3", 4)):
        daemon.order(order, device, *(BROKEN if order == "fail" else ()))
        cluster.wait_numbers(resource, allocatable, 4)


def test_an_unplugged_device_that_is_held_stays_listed_until_it_is_free(
    cluster: Cluster, fairlead: Make, resource: str
):
    daemon = fairlead(sim(resource, 1))
    daemon.start()
    cluster.wait_numbers(resource, 1, 1)
    pod = cluster.run_pod("holds", {resource: 1})
    daemon.order("unplug", "0")
    cluster.wait_numbers(resource, 0, 1)
    assert pod.is_ready()


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_without_the_daemon_nothing_is_allocatable_and_the_capacity_stays(
    cluster: Cluster, fairlead: Make, resource: str, with_signal: signal.Signals
):
    daemon = fairlead(sim(resource, 2))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    daemon.end(with_signal)
    cluster.wait_numbers(resource, 0, 2)


def test_the_pods_status_tells_the_health_of_its_device(cluster: Cluster, fairlead: Make, resource: str):
    daemon = fairlead(sim(resource, 2))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    pod = cluster.run_pod("told", {resource: 1})
    (held,) = cluster.ids(pod)
    until(lambda: health(pod) == [(resource, held, "Healthy")], "the status says Healthy", 60.0)
    daemon.order("fail", held, *BROKEN)
    until(lambda: health(pod) == [(resource, held, "Unhealthy")], "the status says Unhealthy", 90.0)
    daemon.order("recover", held)
    until(lambda: health(pod) == [(resource, held, "Healthy")], "the status says Healthy again", 90.0)
