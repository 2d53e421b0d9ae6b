"""Pods keep their devices while the kubelet and the daemon come and go."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.backends.sim.backend import devices_env
from tests.node.cluster import Cluster
from tests.node.conftest import Measure
from tests.node.daemon import Fairlead, sim
from tests.node.rig.node import start_kubelet, stop_kubelet, wait_ready
from tests.node.rig.places import PLUGINS

Make = Callable[[dict[str, Any]], Fairlead]
PAUSES_S = (0.2, 1.0, 2.0, 3.0, 4.0)  # between start and the next end: before, during and after registration
RESTARTS = 50 if os.environ.get("NODE_TEST_FULL") else 6


def restart_kubelet(cluster: Cluster, resource: str, count: int) -> None:
    stop_kubelet()
    start_kubelet()
    cluster.wait_offered(resource, count)


def test_a_crashed_container_gets_the_same_device_again(cluster: Cluster, fairlead: Make, resource: str):
    fairlead(sim(resource, 2)).start()
    cluster.wait_numbers(resource, 2, 2)
    first = cluster.run_pod("first", {resource: 1})
    before = cluster.ids(first)
    first.crash()
    assert cluster.ids(first) == before
    assert (first.env(instance=1)[devices_env(resource)],) == before
    second = cluster.run_pod("second", {resource: 1})
    assert set(cluster.ids(second)).isdisjoint(before)
    assert cluster.ids(first) == before


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_restarted_kubelet_has_everything_back(
    cluster: Cluster, fairlead: Make, resource: str, measure: Measure, with_signal: signal.Signals
):
    daemon = fairlead(sim(resource, 2))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    pod = cluster.run_pod("stays", {resource: 1})
    before, instance = cluster.ids(pod), pod.container()["containerID"]
    stop_kubelet(with_signal)
    start_kubelet(wait=False)
    listed = cluster.wait_offered(resource, 2)
    back = (PLUGINS / "kubelet.sock").stat().st_ctime
    restored = cluster.wait_numbers(resource, 2, 2, after=back)
    streaming = daemon.wait_fact("streaming", back, resource=resource)
    measure("kubelet.sock is back → registered, stream open", streaming - back)
    measure("kubelet.sock is back → the kubelet has the list", listed - back)
    measure("kubelet.sock is back → Node allocatable", restored - back)
    assert pod.is_ready()
    assert pod.container()["containerID"] == instance
    assert cluster.ids(pod) == before


def test_container_crash_then_kubelet_restart(cluster: Cluster, fairlead: Make, resource: str):
    fairlead(sim(resource, 2)).start()
    cluster.wait_numbers(resource, 2, 2)
    pod = cluster.run_pod("crashes", {resource: 1})
    before = cluster.ids(pod)
    pod.crash()
    restart_kubelet(cluster, resource, 2)
    pod.wait_running()
    assert cluster.ids(pod) == before
    assert (pod.env(instance=1)[devices_env(resource)],) == before


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_restarted_daemon_does_not_disturb_a_pod(
    cluster: Cluster, fairlead: Make, resource: str, with_signal: signal.Signals
):
    daemon = fairlead(sim(resource, 2))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    pod = cluster.run_pod("stays", {resource: 1})
    before, instance = cluster.ids(pod), pod.container()["containerID"]
    daemon.end(with_signal)
    cluster.wait_numbers(resource, 0, 2)
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    assert pod.is_ready()
    assert pod.container()["containerID"] == instance
    assert cluster.ids(pod) == before
    other = cluster.run_pod("other", {resource: 1})
    assert set(cluster.ids(other)).isdisjoint(before)


def test_kubelet_restart_then_daemon_restart(cluster: Cluster, fairlead: Make, resource: str):
    daemon = fairlead(sim(resource, 2))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    pod = cluster.run_pod("stays", {resource: 1})
    before, instance = cluster.ids(pod), pod.container()["containerID"]
    restart_kubelet(cluster, resource, 2)
    daemon.end()
    daemon.start()
    cluster.wait_offered(resource, 2)
    cluster.wait_numbers(resource, 2, 2)
    assert pod.is_ready()
    assert pod.container()["containerID"] == instance
    assert cluster.ids(pod) == before


def test_a_daemon_that_starts_before_the_kubelet_waits_for_it(cluster: Cluster, fairlead: Make, resource: str):
    stop_kubelet()
    daemon = fairlead(sim(resource, 2))
    daemon.start()
    daemon.wait_fact("backoff", resource=resource)
    start_kubelet()
    cluster.wait_numbers(resource, 2, 2)


def test_pods_keep_their_devices_over_kubelet_restarts_at_odd_moments(cluster: Cluster, fairlead: Make, resource: str):
    chance = random.Random(4)  # fixed, so that a failure comes again
    fairlead(sim(resource, 8)).start()
    cluster.wait_numbers(resource, 8, 8)
    pods = [cluster.run_pod(f"pod{number}", {resource: 1 + number % 2}) for number in range(4)]
    before = {pod.name: (cluster.ids(pod), pod.container()["containerID"]) for pod in pods}
    for _ in range(RESTARTS):
        stop_kubelet(chance.choice([signal.SIGTERM, signal.SIGKILL]))
        start_kubelet(wait=False)
        time.sleep(chance.choice(PAUSES_S))  # not a wait for anything: the moment of the next restart
    began = time.time()
    wait_ready()
    cluster.wait_offered(resource, 8)
    cluster.wait_numbers(resource, 8, 8, after=began)
    assert {pod.name: (cluster.ids(pod), pod.container()["containerID"]) for pod in pods} == before
    assert all(pod.is_ready() for pod in pods)
