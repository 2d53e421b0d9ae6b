"""Fairlead as people would deploy it: a DaemonSet from an image, with as few rights as it needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest

from fairlead.backends.sim.backend import devices_env
from tests.node.cluster import Cluster
from tests.node.daemon import HEALTH
from tests.node.deployed import SETS, SPACE, has_account, is_gone, manifest, pods, wait_rolled_out
from tests.node.rig.api import Api, RefusedError
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.steps import until
from tests.node.traffic import Traffic

GPU = "example.com/deployed"
COUNT = 16  # short pods hold devices for a moment after their end
PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
CONFIG = {
    "backends": [{"kind": "sim", "fleet": {"name": "deployed", "devices": [{"count": COUNT, "id": "deployed-{i}"}]}}],
    "rules": [{"resource": GPU}],
    "health": HEALTH,
}


@pytest.fixture
def deployed(cluster: Cluster, image: str) -> Iterator[Api]:
    api = cluster.api
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
    try:
        until(lambda: has_account(api), "the namespace has its account")
        text = {"fairlead.yaml": json.dumps(CONFIG)}
        api.call("POST", f"/api/v1/namespaces/{SPACE}/configmaps", {"metadata": {"name": "fairlead"}, "data": text})
        api.call("POST", SETS, manifest())
        wait_rolled_out(api)
        yield api
    finally:
        for path in (f"{SETS}/fairlead", f"/api/v1/namespaces/{SPACE}"):
            with suppress(RefusedError):
                api.call("DELETE", path)
        until(lambda: is_gone(api), "the namespace is gone", 90.0)


def test_a_daemonset_serves_pods_through_a_rolling_update_and_a_kubelet_restart(cluster: Cluster, deployed: Api):
    cluster.wait_numbers(GPU, COUNT, COUNT)
    pod = cluster.run_pod("guest", {GPU: 2}, hostNetwork=False)
    held, instance = cluster.ids(pod), pod.container()["containerID"]
    assert pod.env()[devices_env(GPU)] == ",".join(held)

    (before,) = pods(deployed)
    change = {"spec": {"template": {"metadata": {"annotations": {"example.com/release": "2"}}}}}
    deployed.call("PATCH", f"{SETS}/fairlead", change, PATCH)
    wait_rolled_out(deployed)
    (after,) = pods(deployed)
    assert after["metadata"]["name"] != before["metadata"]["name"]
    cluster.wait_offered(GPU, COUNT)

    stop_kubelet()
    start_kubelet()
    cluster.wait_offered(GPU, COUNT)
    (same,) = pods(deployed)
    assert same["metadata"]["name"] == after["metadata"]["name"]
    assert same["status"]["containerStatuses"][0]["restartCount"] == 0
    assert (cluster.ids(pod), pod.container()["containerID"]) == (held, instance)


def test_an_update_with_a_surge_takes_over_and_refuses_no_pod(cluster: Cluster, deployed: Api):
    cluster.wait_numbers(GPU, COUNT, COUNT)
    tenant = cluster.run_pod("tenant", {GPU: 1}, hostNetwork=False)
    held, instance = cluster.ids(tenant), tenant.container()["containerID"]
    container = {
        "name": "fairlead",
        "env": [{"name": "FAIRLEAD_TAKE_OVER", "value": "true"}],
        "readinessProbe": {"exec": {"command": ["fairlead", "status", "--check"]}},
    }
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    change = {"updateStrategy": surge, "template": {"spec": {"containers": [container]}}}
    # The pods of the fixture hand over to the first that may take over.
    with Traffic(cluster, {GPU: 1}, straight=True) as traffic:
        for release in ("2", "3"):
            change["template"]["metadata"] = {"annotations": {"example.com/release": release}}  # type: ignore[index]
            deployed.call("PATCH", f"{SETS}/fairlead", {"spec": change}, STRATEGIC)
            wait_rolled_out(deployed)
        traffic.wait_more(2)
    assert traffic.refused() == []
    assert (cluster.ids(tenant), tenant.container()["containerID"]) == (held, instance)
    (pod,) = pods(deployed)
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
