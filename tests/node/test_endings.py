"""Pods that end, nodes that reboot, lists that do not fit: nothing is lost and nothing sticks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tests.node.cluster import Cluster, running_containers, shape
from tests.node.daemon import Fairlead, sim
from tests.node.rig import sweep
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.places import BIN
from tests.node.rig.steps import until

Make = Callable[[dict[str, Any]], Fairlead]
SHORT_PODS = 200 if os.environ.get("NODE_TEST_FULL") else 12
ONCE = {"script": "exit 0", "restartPolicy": "Never"}


def test_short_pods_in_a_row_leave_nothing_held(cluster: Cluster, fairlead: Make, resource: str):
    daemon = fairlead(sim(resource, 2))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    for number in range(SHORT_PODS):
        pod = cluster.start_pod(f"short{number}", {resource: 2}, **ONCE).wait_phase("Succeeded")
        assert not cluster.held(pod)
        pod.delete()
    assert len(daemon.facts("allocated", resource=resource)) == SHORT_PODS
    assert len(cluster.ids(cluster.run_pod("last", {resource: 2}))) == 2


def test_a_pod_that_has_succeeded_stays_so_without_the_daemon(cluster: Cluster, fairlead: Make, resource: str):
    daemon = fairlead(sim(resource, 2))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    pod = cluster.start_pod("done", {resource: 1}, **ONCE).wait_phase("Succeeded")
    daemon.end()
    cluster.wait_numbers(resource, 0, 2)
    stop_kubelet()
    start_kubelet()
    witness = cluster.run_pod("witness", {})  # it runs, so the kubelet has looked at its pods
    assert witness.is_ready()
    assert pod.phase == "Succeeded"


def test_a_pod_deleted_while_the_kubelet_is_down_frees_its_device(cluster: Cluster, fairlead: Make, resource: str):
    fairlead(sim(resource, 1)).start()
    cluster.wait_numbers(resource, 1, 1)
    pod = cluster.run_pod("deleted", {resource: 1})
    before, container = cluster.ids(pod), pod.container()["containerID"].removeprefix("containerd://")
    stop_kubelet()
    pod.delete()
    start_kubelet()
    cluster.wait_offered(resource, 1)
    until(lambda: container not in running_containers(), "its container is gone", 60.0)
    until(lambda: not cluster.held(pod), "nothing is held any more", 60.0)
    assert cluster.ids(cluster.run_pod("next", {resource: 1})) == before


def test_after_a_reboot_without_the_daemon_a_pod_fails_and_with_it_the_next_one_runs(
    cluster: Cluster, fairlead: Make, resource: str
):
    daemon = fairlead(sim(resource, 2))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    pod = cluster.run_pod("rebooted", {resource: 1})
    stop_kubelet()
    daemon.end()
    sweep.remove_sandboxes(BIN / "ctr")  # what a reboot does to containers
    start_kubelet()
    status = pod.wait_phase("Failed").look()["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "no healthy devices present; cannot allocate unhealthy devices" in status["message"]
    assert not cluster.held(pod)
    daemon.start()
    cluster.wait_offered(resource, 2)
    assert len(cluster.ids(cluster.run_pod("next", {resource: 2}))) == 2


def test_a_container_that_cannot_start_tells_the_health_of_its_device(cluster: Cluster, fairlead: Make, resource: str):
    daemon = fairlead(sim(resource, 1))
    daemon.start()
    cluster.wait_numbers(resource, 1, 1)
    container = shape("main", {resource: 1}, image="localhost/fairlead-node/nothing:1")
    pod = cluster.start_pod("stuck", {}, containers=[container])

    def told() -> list[str]:
        entries = pod.container().get("allocatedResourcesStatus", ())
        return [one["health"] for entry in entries for one in entry["resources"]]

    until(lambda: told() == ["Healthy"], "the status says Healthy", 90.0)
    daemon.order("fail", "0", "code=smoke", "kind=needs-reset")
    until(lambda: told() == ["Unhealthy"], "the status says Unhealthy", 90.0)
    assert pod.container()["state"]["waiting"]["reason"] == "ErrImageNeverPull"


def test_a_list_too_large_for_the_kubelet_is_refused_by_us_and_the_others_go_on(
    cluster: Cluster, fairlead: Make, resource: str
):
    large, small = f"{resource}-large", f"{resource}-small"
    config = sim(resource, 4)
    config["rules"] = [
        {"match": {"index": [0, 1]}, "resource": large, "replicas": 60_000},
        {"resource": small},
    ]
    daemon = fairlead(config)
    daemon.start()
    cluster.wait_numbers(small, 2, 2)
    daemon.wait_fact("list-refused", resource=large)
    assert cluster.numbers(large) is None
