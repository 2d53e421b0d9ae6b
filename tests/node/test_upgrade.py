"""One daemon takes over from another on a true node: no moment without devices, and no pod that is refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.cluster import Cluster
from tests.node.conftest import Measure
from tests.node.daemon import Fairlead, sim
from tests.node.nvidia import GPU, Machine, Plugin, machine, wait_served
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.steps import until
from tests.node.traffic import Traffic, Watch
from tests.nvml import Driver, gpus

RESOURCE = "example.com/upgraded"
UPGRADES = 20
COMPARED = 10 if os.environ.get("NODE_TEST_FULL") else 3
IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}  # one in a pod waits to be stopped


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[Path]:
    def made() -> Iterator[Path]:
        for number in range(100):
            root = tmp_path / str(number)
            root.mkdir()
            yield root

    return made()


@pytest.fixture
def eight(cluster: Cluster) -> Iterator[Machine]:
    with machine(Driver(gpus=gpus("H100", 8))) as made:
        yield made
        cluster.remove_pods()  # before the plugin ends


def start(root: Path) -> Fairlead:
    fairlead = Fairlead(root, {**sim(RESOURCE, 8), "takeOver": True})
    fairlead.run("-m", "fairlead", "run", "--config", str(fairlead.file), env=IN_POD)
    fairlead.wait_fact("streaming")  # the node may still have the numbers of an earlier test
    return fairlead


def test_twenty_upgrades_in_a_row_refuse_no_pod(cluster: Cluster, roots: Iterator[Path], measure: Measure):
    serving = start(next(roots))
    try:
        cluster.wait_numbers(RESOURCE, 8, 8)
        tenant = cluster.run_pod("tenant", {RESOURCE: 2})
        held, instance = cluster.ids(tenant), tenant.container()["containerID"]
        with Watch(cluster, RESOURCE, 8) as watch, Traffic(cluster, {RESOURCE: 1}, straight=True) as traffic:
            for _ in range(UPGRADES):
                new = start(next(roots))
                new.wait_fact("taken-over")
                assert serving.end() == 0
                serving = new
            traffic.wait_more(2)
        refused = traffic.refused()
        print(f"{UPGRADES} upgrades: {traffic.count} pods came, refused: {refused}; {watch.looks} looks")
        measure(f"{UPGRADES} upgrades: time with fewer devices", watch.less_s)
        assert refused == []
        assert watch.less_s == 0.0
        assert watch.looks > UPGRADES
        assert (cluster.ids(tenant), tenant.container()["containerID"]) == (held, instance)
        # The connections that were kept open go with the kubelet that had opened them.
        stop_kubelet()
        start_kubelet()
        cluster.wait_offered(RESOURCE, 8)
        # As few as it takes: a kubelet that has just started frees nothing of its checkpoint before it knows its pods.
        assert cluster.ids(cluster.run_pod("after", {RESOURCE: 1}))
    finally:
        cluster.remove_pods()
        serving.end()


def test_a_new_daemon_that_is_killed_leaves_the_old_one_serving(cluster: Cluster, roots: Iterator[Path]):
    old = start(next(roots))
    try:
        cluster.wait_numbers(RESOURCE, 8, 8)
        new = start(next(roots))
        taken = new.wait_fact("taken-over")
        new.end(signal.SIGKILL)
        old.wait_fact("streaming", after=taken)
        cluster.wait_offered(RESOURCE, 8)
        assert cluster.ids(cluster.run_pod("after", {RESOURCE: 8}))
    finally:
        cluster.remove_pods()
        old.end()


def take_over(eight: Machine) -> Plugin:
    new = eight.another("--take-over")
    new.start()
    until(lambda: " taken-over " in new.said(), f"{new.name} takes over")
    return new


def test_beside_restarts_of_nvidias_plugin(cluster: Cluster, eight: Machine, measure: Measure):
    """The same driver, the same traffic. NVIDIA's plugin is stopped and started, as its DaemonSet does it."""
    eight.nvidias.start()
    wait_served(cluster, GPU, 8)
    with Watch(cluster, GPU, 8) as theirs, Traffic(cluster, {GPU: 1}, straight=True) as their_pods:
        for _ in range(COMPARED):
            eight.nvidias.end()
            eight.nvidias.start()
            cluster.wait_offered(GPU, 8)
        their_pods.wait_more(2)
    their_refused = their_pods.refused()
    eight.nvidias.end()

    serving = eight.another("--take-over")
    serving.start()
    wait_served(cluster, GPU, 8)
    tenant = cluster.run_pod("tenant", {GPU: 1})
    held, instance = cluster.ids(tenant), tenant.container()["containerID"]
    with Watch(cluster, GPU, 8) as ours, Traffic(cluster, {GPU: 1}, straight=True) as our_pods:
        for _ in range(COMPARED):
            new = take_over(eight)
            serving.end()
            serving = new
        our_pods.wait_more(2)
    our_refused = our_pods.refused()

    print(f"{COMPARED} upgrades in a row       without devices   pods refused")
    print(f"NVIDIA's, stopped and started  {theirs.less_s:9.3f} s   {len(their_refused):6} of {their_pods.count}")
    print(f"ours, which takes over         {ours.less_s:9.3f} s   {len(our_refused):6} of {our_pods.count}")
    measure(f"NVIDIA's plugin, {COMPARED} restarts: time with fewer devices", theirs.less_s)
    measure(f"fairlead nvidia, {COMPARED} upgrades: time with fewer devices", ours.less_s)
    assert our_refused == []
    assert ours.less_s == 0.0
    assert (cluster.ids(tenant), tenant.container()["containerID"]) == (held, instance)
