"""Roll-outs of the DaemonSet of a manifest, under pods that come: nothing is refused, nothing is disturbed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.node import vendor
from tests.node.applied import Applied, Objects, applied, container, template
from tests.node.charted import MERGE, PORT, left_behind, sockets
from tests.node.cluster import Cluster
from tests.node.conftest import Measure
from tests.node.daemon import sim
from tests.node.nvidia import GPU, wait_served
from tests.node.rig.places import NODE
from tests.node.traffic import Traffic, Watch
from tests.node.web import Web
from tests.nvml import Driver, gpus
from tests.nvml import Node as Machine

RESOURCE = "example.com/rolled-out"
COUNT = 32  # short pods hold devices for a moment after their end
ROLLOUTS = 20 if os.environ.get("NODE_TEST_FULL") else 5
# A change of the DaemonSet, and why the kubelet then waits with the container of its new pod.
BROKEN = {
    "ErrImageNeverPull": ("image", "fairlead=localhost/fairlead-node/absent:1"),
    "CrashLoopBackOff": ("env", "FAIRLEAD_LOG_FORMAT=nonsense"),
}
PRESENT = "nvidia.com/gpu.present"  # what the manifest chooses nodes by


def simulate(objects: Objects) -> None:
    objects["ConfigMap"]["data"]["fairlead.yaml"] = yaml.safe_dump(sim(RESOURCE, COUNT))


@pytest.fixture
def plugin(cluster: Cluster, image: str, tmp_path: Path) -> Iterator[Applied]:
    with applied(cluster.api, "fairlead", tmp_path, simulate) as made:
        cluster.wait_offered(RESOURCE, COUNT)
        yield made
        cluster.remove_pods()  # before the plugin ends


def test_rollouts_in_a_row_refuse_no_pod_and_disturb_none(cluster: Cluster, plugin: Applied, measure: Measure):
    tenant = cluster.run_pod("tenant", {RESOURCE: 2})
    held, instance = cluster.ids(tenant), tenant.container()["containerID"]
    names = [plugin.pod()["metadata"]["name"]]
    with Watch(cluster, RESOURCE, COUNT) as watch, Traffic(cluster, {RESOURCE: 1}, straight=True) as traffic:
        for _ in range(ROLLOUTS):
            began_s = time.monotonic()
            plugin.restart()
            measure("roll-out of a DaemonSet pod, until the old one is gone", time.monotonic() - began_s)
            names.append(plugin.pod()["metadata"]["name"])
            assert container(plugin.pod())["restartCount"] == 0
        traffic.wait_more(2)
    refused = traffic.refused()
    print(f"{ROLLOUTS} roll-outs: {traffic.count} pods came, refused: {refused}; {watch.looks} looks")
    measure(f"{ROLLOUTS} roll-outs of DaemonSet pods: time with fewer devices", watch.less_s)
    assert len(set(names)) == ROLLOUTS + 1
    assert refused == []
    assert watch.less_s == 0.0
    assert watch.looks > ROLLOUTS
    assert (cluster.ids(tenant), tenant.container()["containerID"]) == (held, instance)


def waits_for(reason: str) -> Callable[[Any], bool]:
    return lambda status: status.get("state", {}).get("waiting", {}).get("reason") == reason


def test_a_rollout_that_never_gets_ready_leaves_the_old_pod_serving_until_it_is_undone(
    cluster: Cluster, plugin: Applied
):
    tenant = cluster.run_pod("tenant", {RESOURCE: 2})
    held, instance = cluster.ids(tenant), tenant.container()["containerID"]
    old = plugin.pod()
    with Watch(cluster, RESOURCE, COUNT) as watch, Traffic(cluster, {RESOURCE: 1}, straight=True) as traffic:
        for reason, change in BROKEN.items():
            plugin.change(*change)
            plugin.wait_newcomer(old, waits_for(reason), f"waits: {reason}")
            traffic.wait_more(2)
            plugin.rollout("undo")
            plugin.wait_rolled_out()
            assert plugin.pod()["metadata"]["name"] == old["metadata"]["name"]
        assert container(plugin.pod())["restartCount"] == 0
        plugin.restart()  # a good one is not kept from taking over
        traffic.wait_more(2)
    assert plugin.pod()["metadata"]["name"] != old["metadata"]["name"]
    assert traffic.refused() == []
    assert watch.less_s == 0.0
    assert (cluster.ids(tenant), tenant.container()["containerID"]) == (held, instance)


def choose_runtime(objects: Objects) -> None:
    """The node's default runtime is not NVIDIA's."""
    template(objects)["runtimeClassName"] = vendor.CLASS


@pytest.fixture
def four(cluster: Cluster, tmp_path: Path) -> Iterator[Machine]:
    """GPUs, their driver and runtime, on a node that is labelled as having them."""

    def label(value: str | None) -> None:
        cluster.api.call("PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {PRESENT: value}}}, MERGE)

    with vendor.installed(Driver(gpus=gpus("A100", 4)), tmp_path / "gpus") as machine:
        label("true")
        try:
            yield machine
        finally:
            machine.mend()
            label(None)


@pytest.fixture
def nvidias(cluster: Cluster, image: str, four: Machine, tmp_path: Path) -> Iterator[Applied]:
    with applied(cluster.api, "nvidia", tmp_path, choose_runtime) as made:
        wait_served(cluster, GPU, 4)
        yield made
        cluster.remove_pods()


def test_a_new_pod_whose_driver_hangs_leaves_the_old_one_serving(cluster: Cluster, four: Machine, nvidias: Applied):
    old = nvidias.pod()
    four.hang("nvmlInit")
    with Watch(cluster, GPU, 4) as watch:
        nvidias.rollout("restart")
        new = nvidias.wait_newcomer(old, lambda status: "running" in status.get("state", {}), "runs")
        web = Web(new["status"]["podIP"], PORT)
        assert web.wait_failing("/startupz", "scanned") == "not yet scanned: nvidia"
        guest = cluster.run_pod("guest", {GPU: 4}, runtimeClassName=vendor.CLASS)
        assert set(guest.env()[vendor.ASKS].split(",")) == {gpu.uuid for gpu in four.driver.gpus}
        nvidias.rollout("undo")
        nvidias.wait_rolled_out()
        assert nvidias.pod()["metadata"]["name"] == old["metadata"]["name"]
        four.mend()
        nvidias.restart()
    assert nvidias.pod()["metadata"]["name"] != old["metadata"]["name"]
    assert watch.less_s == 0.0


@pytest.mark.usefixtures("image")
def test_the_manifest_for_nvidia_is_applied_gives_a_pod_its_gpu_and_leaves_nothing_behind(
    cluster: Cluster, four: Machine, tmp_path: Path
):
    before = sockets()
    with applied(cluster.api, "nvidia", tmp_path, choose_runtime) as plugin:
        wait_served(cluster, GPU, 4)
        guest = cluster.run_pod("guest", {GPU: 1}, runtimeClassName=vendor.CLASS)
        (held,) = cluster.ids(guest)
        assert held in {gpu.uuid for gpu in four.driver.gpus}
        assert guest.env()[vendor.ASKS] == held
        cluster.remove_pods()
        plugin.delete()
        assert left_behind(cluster.api, "fairlead") == []
        assert sockets() == before
