"""A true kubelet takes our devices and hands them to containers."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.backends.sim.backend import devices_env
from tests.node.cluster import Cluster, Held, shape
from tests.node.conftest import Measure
from tests.node.daemon import Fairlead, sim
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.places import KUBELET
from tests.node.rig.steps import until

Make = Callable[[dict[str, Any]], Fairlead]


@pytest.mark.parametrize("way", ["socket", "watcher"])
def test_registered_devices_are_capacity_and_allocatable(
    cluster: Cluster, fairlead: Make, resource: str, measure: Measure, way: str
):
    daemon = fairlead({**sim(resource, 2), "kubelet": {"registration": way}})
    began = daemon.start()
    measure(f"daemon start → the kubelet has the list ({way})", cluster.wait_offered(resource, 2) - began)
    measure(f"daemon start → Node allocatable ({way})", cluster.wait_numbers(resource, 2, 2) - began)


def test_a_pod_gets_exactly_what_it_asks_for(cluster: Cluster, fairlead: Make, resource: str):
    fairlead(sim(resource, 2)).start()
    cluster.wait_numbers(resource, 2, 2)
    pod = cluster.run_pod("one", {resource: 1})
    (held,) = cluster.held(pod)
    assert (held.container, held.resource, len(held.ids)) == ("main", resource, 1)
    assert cluster.held(pod, "v1alpha1") == [Held("main", resource, held.ids, None)]
    assert pod.env()[devices_env(resource)] == held.ids[0]


def test_env_mounts_and_device_nodes_are_there_inside(cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path):
    nodes = [tmp_path / "zero0", tmp_path / "zero1"]
    for node in nodes:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # reads zeros: a device that can be tried anywhere
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "version").write_text("7\n")
    rule = {
        "resource": resource,
        "env": {"VISIBLE": "{ids}"},
        "mounts": [{"host": str(tmp_path / "library"), "container": "/opt/vendor"}],
    }
    backend = {"kind": "paths", "devices": [{"paths": [f"{tmp_path}/zero*"]}]}
    fairlead({"backends": [backend], "rules": [rule]}).start()
    cluster.wait_numbers(resource, 2, 2)
    script = (
        f"env; cat /opt/vendor/version; touch /opt/vendor/x || echo read-only; cd {tmp_path}; "
        "for node in zero*; do echo $node gives $(head -c 3 $node | od -An -tx1); done; echo -- end; exec sleep 1000000"
    )
    pod = cluster.run_pod("inside", {resource: 1}, script=script)
    prints, (chosen,) = pod.prints(), cluster.ids(pod)
    assert pod.env()["VISIBLE"] == chosen
    assert "7" in prints
    assert "read-only" in prints
    assert [line for line in prints if " gives" in line] == [f"{chosen} gives 00 00 00"]


def test_a_pod_may_ask_for_two_resources(cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path):
    first, second = f"{resource}-a", f"{resource}-b"
    for number in range(2):
        os.mknod(tmp_path / f"zero{number}", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    config = sim(second, 3)
    config["backends"].append({"kind": "paths", "devices": [{"paths": [f"{tmp_path}/zero*"]}]})
    config["rules"] = [
        {"match": {"backend": "paths"}, "resource": first, "env": {"A": "{ids}"}},
        {"resource": second, "env": {"B": "{count}"}},
    ]
    fairlead(config).start()
    cluster.wait_numbers(first, 2, 2)
    cluster.wait_numbers(second, 3, 3)
    pod = cluster.run_pod("two", {first: 1, second: 2})
    held = {one.resource: one.ids for one in cluster.held(pod)}
    assert {name: len(ids) for name, ids in held.items()} == {first: 1, second: 2}
    assert pod.env()["A"] == held[first][0]
    assert pod.env()["B"] == "2"
    assert pod.env()[devices_env(second)] == ",".join(held[second])


def test_the_kubelet_takes_the_devices_that_we_prefer(cluster: Cluster, fairlead: Make, resource: str):
    # Any two of eight would do; these four pairs are joined by a fast link.
    pairs = {"0-5": 500, "1-4": 500, "2-7": 500, "3-6": 500}
    fairlead(sim(resource, 8, fleet={"links": {"scheme": "numa", "pairs": pairs}})).start()
    cluster.wait_numbers(resource, 8, 8)
    short = resource.partition("/")[2]
    joined = {tuple(f"{short}-{index}" for index in pair.split("-")) for pair in pairs}
    taken = {cluster.ids(cluster.run_pod(f"pair{number}", {resource: 2})) for number in range(4)}
    assert taken == joined


def test_init_and_sidecar_share_a_device_and_the_app_has_its_own(cluster: Cluster, fairlead: Make, resource: str):
    fairlead(sim(resource, 2)).start()
    cluster.wait_numbers(resource, 2, 2)
    ask = {resource: 1}
    first = shape("first", ask, "env; echo -- end")
    sidecar = shape("sidecar", ask, restartPolicy="Always")
    pod = cluster.run_pod("three", ask, initContainers=[first, sidecar])
    held = {one.container: one.ids for one in cluster.held(pod)}
    assert set(held) == {"sidecar", "main"}
    assert held["sidecar"] != held["main"]
    assert pod.env("first")[devices_env(resource)] == pod.env("sidecar")[devices_env(resource)]
    assert pod.env()[devices_env(resource)] == held["main"][0]


@pytest.mark.parametrize("numa", [None, 0])
def test_the_numa_node_is_told_only_where_it_is_known(
    cluster: Cluster, fairlead: Make, resource: str, numa: int | None
):
    fairlead(sim(resource, 1, fleet={} if numa is None else {"numa": numa})).start()
    cluster.wait_numbers(resource, 1, 1)
    pod = cluster.run_pod("numa", {resource: 1})
    (held,) = cluster.held(pod)
    assert held.numa == (None if numa is None else (numa,))
    stop_kubelet()
    start_kubelet()
    cluster.wait_offered(resource, 1)
    # A kubelet that has just started has its devices before its pods.
    assert until(lambda: cluster.held(pod), "the kubelet says what the pod holds") == [held]


@pytest.mark.parametrize("way", ["socket", "watcher"])
def test_a_new_daemon_replaces_the_list_of_the_old_one(cluster: Cluster, fairlead: Make, resource: str, way: str):
    daemon = fairlead({**sim(resource, 2), "kubelet": {"registration": way}})
    for count in (2, 2, 1):
        daemon.configure({**sim(resource, count), "kubelet": {"registration": way}})
        began = daemon.start()
        daemon.wait_fact("streaming", began, resource=resource)
        cluster.wait_numbers(resource, count, count)
        assert len(cluster.offered(resource)) == count
        daemon.end()
    left = [path.name for path in KUBELET.glob("*/fairlead*")]
    assert left == [], "the daemon left a socket behind"


def test_a_reload_changes_what_the_node_offers(cluster: Cluster, fairlead: Make, resource: str):
    daemon = fairlead(sim(resource, 2))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    daemon.configure(sim(resource, 2, replicas=3))
    # The two whole slots stay listed for a minute, unhealthy: the kubelet might be giving one away right now.
    cluster.wait_numbers(resource, 6, 8)
