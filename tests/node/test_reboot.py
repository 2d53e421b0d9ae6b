"""A node that reboots with eight pods that hold devices: which of them survive, by the form in which Fairlead runs.

A reboot ends every container and every daemon, and keeps what is on the disk: the kubelet's checkpoint, and the pods in
the API. The kubelet admits pods again as soon as it knows them, and asks its own books for their devices.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.node.cluster import Cluster, Pod
from tests.node.conftest import Measure
from tests.node.daemon import Fairlead, sim
from tests.node.deployed import SETS, SPACE, has_account, is_gone, manifest, wait_rolled_out
from tests.node.reboot import switch_off
from tests.node.rig.api import Api, RefusedError
from tests.node.rig.node import start_kubelet
from tests.node.rig.steps import until

Make = Callable[[dict[str, Any]], Fairlead]
PODS = 8
AGAIN_S = 120.0


def hold_all(cluster: Cluster, resource: str) -> dict[Pod, tuple[tuple[str, ...], str]]:
    """Eight pods, one device each: what each holds, and in which container."""
    cluster.wait_numbers(resource, PODS, PODS)
    pods = [cluster.run_pod(f"reboot{number}", {resource: 1}) for number in range(PODS)]
    return {pod: (cluster.ids(pod), str(pod.container()["containerID"])) for pod in pods}


def judge(pods: dict[Pod, tuple[tuple[str, ...], str]]) -> tuple[list[Pod], list[Pod]]:
    """Those that run again in a new container, and those that failed. The API still tells the old state for a while."""

    def outcome(pod: Pod, old: str) -> str:
        status = pod.look()["status"]
        if status.get("phase") == "Failed":
            return "failed"
        fresh = pod.container().get("containerID") not in {None, "", old}
        return "survived" if fresh and pod.is_ready() else ""

    found = {
        pod: until(lambda pod=pod, old=old: outcome(pod, old), f"{pod.name} runs again, or fails", AGAIN_S)  # type: ignore[misc]  # a default binds the pod of this turn
        for pod, (_, old) in pods.items()
    }
    survived = [pod for pod, word in found.items() if word == "survived"]
    return survived, [pod for pod in pods if pod not in survived]


def test_on_the_host_before_the_kubelet_every_pod_survives_with_its_device(
    cluster: Cluster, fairlead: Make, resource: str, measure: Measure
):
    daemon = fairlead(sim(resource, PODS))
    daemon.start()
    pods = hold_all(cluster, resource)
    switch_off(daemon)
    began = daemon.start()
    # What systemd waits for: it is ready, and there is no kubelet yet. See `Before=` and `Type=notify` of the unit.
    ready = daemon.wait_fact("backoff", began, resource=resource)
    measure("reboot, on the host: start → ready for the kubelet", ready - began)
    start_kubelet()
    survived, lost = judge(pods)
    assert [pod.name for pod in lost] == []
    assert len(survived) == PODS
    assert {pod.name: cluster.ids(pod) for pod in survived} == {pod.name: ids for pod, (ids, _) in pods.items()}


@pytest.fixture
def deployed(cluster: Cluster, image: str, resource: str) -> Iterator[Api]:
    api = cluster.api
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
    try:
        until(lambda: has_account(api), "the namespace has its account")
        text = {"fairlead.yaml": json.dumps(sim(resource, PODS))}
        api.call("POST", f"/api/v1/namespaces/{SPACE}/configmaps", {"metadata": {"name": "fairlead"}, "data": text})
        api.call("POST", SETS, manifest())
        wait_rolled_out(api)
        yield api
    finally:
        for path in (f"{SETS}/fairlead", f"/api/v1/namespaces/{SPACE}"):
            with suppress(RefusedError):
                api.call("DELETE", path)
        until(lambda: is_gone(api), "the namespace is gone", 90.0)


def test_as_a_daemonset_no_pod_survives_and_new_ones_run(cluster: Cluster, deployed: Api, resource: str):
    """The kubelet admits all pods before it has started one of them, also that of the DaemonSet."""
    pods = hold_all(cluster, resource)
    switch_off()
    start_kubelet()
    survived, lost = judge(pods)
    reasons = {pod.look()["status"].get("reason") for pod in lost}
    assert (len(survived), reasons) == (0, {"UnexpectedAdmissionError"})
    cluster.wait_offered(resource, PODS)
    assert len(cluster.ids(cluster.run_pod("next", {resource: PODS}))) == PODS


def test_on_the_host_a_daemon_that_comes_after_the_kubelet_loses_them(cluster: Cluster, fairlead: Make, resource: str):
    """What the order of the units is for."""
    daemon = fairlead(sim(resource, PODS))
    daemon.start()
    pods = hold_all(cluster, resource)
    switch_off(daemon)
    start_kubelet()
    survived, lost = judge(pods)
    daemon.start()
    assert (len(survived), len(lost)) == (0, PODS)
    cluster.wait_offered(resource, PODS)
