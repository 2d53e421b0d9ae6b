"""A cordon on a real node outlasts the daemon, the kubelet and a reboot; a pod that holds the device keeps it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.node.cluster import Cluster
from tests.node.daemon import Fairlead, sim
from tests.node.reboot import switch_off
from tests.node.rig.node import start_kubelet, stop_kubelet

Make = Callable[[dict[str, Any]], Fairlead]


def order(daemon: Fairlead, *words: str) -> str:
    command = [sys.executable, "-m", "fairlead", *words, "--status-socket", str(daemon.socket)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_cordon_outlasts_restarts_of_daemon_kubelet_and_node(cluster: Cluster, fairlead: Make, resource: str):
    daemon = fairlead(sim(resource, 3))
    daemon.start()
    cluster.wait_numbers(resource, 3, 3)
    pod = cluster.run_pod("keeps", {resource: 1})
    (held,) = cluster.ids(pod)
    order(daemon, "cordon", held, "--reason", "fan is replaced")
    cluster.wait_offered(resource, 2)
    assert pod.is_ready()
    assert cluster.ids(pod) == (held,)

    daemon.end()
    cluster.wait_offered(resource, 0)
    daemon.start()
    cluster.wait_offered(resource, 2)

    stop_kubelet()
    start_kubelet(wait=False)
    cluster.wait_offered(resource, 2)
    assert "fan is replaced" in order(daemon, "cordon")

    switch_off(daemon)
    daemon.start()
    start_kubelet()
    cluster.wait_offered(resource, 2)
    assert held in order(daemon, "cordon")

    order(daemon, "uncordon", held)
    cluster.wait_offered(resource, 3)
