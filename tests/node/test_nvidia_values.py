"""A values file of NVIDIA's chart, with nothing changed but the image: installed, used, reconfigured and removed.

The driver is simulated, and so is the runtime that gives it to containers. Everything else is real.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chart.foreign import NVIDIAS
from tests.node import charted, vendor
from tests.node.charted import MERGE, RELEASE, SPACE, WAIT, Installed
from tests.node.cluster import Cluster
from tests.node.nvidia import GPU, wait_served
from tests.node.rig import door
from tests.node.rig.api import Api
from tests.node.rig.places import NODE
from tests.node.rig.steps import until
from tests.node.web import WELL
from tests.nvml import Driver, gpus
from tests.nvml import Node as Machine

COUNT = 4
LABEL = "nvidia.com/device-plugin.config"
PRESENT = "nvidia.com/gpu.present"  # what NVIDIA's chart chooses nodes by, where no other program labels them
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FEATURES = "nodefeatures.nfd.k8s-sigs.io"
FEATURE = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{SPACE}/nodefeatures/nvidia-features-for-{NODE}"
OPENS = 'for node in /dev/nvidia*; do : <>"$node" && echo "opens $node"; done; env; echo -- end; exec sleep 1000000'
WHOLE = "version: v1\nflags:\n  migStrategy: none\n"
SLICED = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: {}\n"


def values(replicas: int) -> dict[str, Any]:
    """Every key of NVIDIA's file, some with another value than its default."""
    config = {"map": {"whole": WHOLE, "sliced": SLICED.format(replicas)}, "default": "whole"}
    chosen = {
        "config": {**NVIDIAS["config"], **config},
        "migStrategy": "none",
        "failOnInitError": True,
        "deviceListStrategy": "envvar",
        "deviceIDStrategy": "uuid",
        "runtimeClassName": vendor.CLASS,
        "podAnnotations": {"example.com/team": "a"},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "tolerations": [*NVIDIAS["tolerations"], {"key": "example.com/gpu", "operator": "Exists"}],
        "gfd": {**NVIDIAS["gfd"], "enabled": True},
    }
    assert chosen.keys() <= NVIDIAS.keys()
    return {**NVIDIAS, **chosen, "image": charted.image()}


def label(cluster: Cluster, **labels: str | None) -> None:
    cluster.api.call("PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"labels": labels}}, MERGE)


@pytest.fixture
def four(cluster: Cluster, tmp_path: Path) -> Iterator[Machine]:
    """GPUs, their driver and runtime, and a way to the API server for the program that follows the node's label."""
    with vendor.installed(Driver(gpus=gpus("A100", COUNT)), tmp_path / "gpus") as machine, door.to_api_server():
        label(cluster, **{PRESENT: "true"})
        try:
            yield machine
        finally:
            machine.mend()
            label(cluster, **{PRESENT: None, LABEL: None})


@pytest.fixture
def features(cluster: Cluster) -> Iterator[None]:
    """The kind of object that node-feature-discovery brings, and reads labels from."""
    names = {"plural": "nodefeatures", "singular": "nodefeature", "kind": "NodeFeature"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "nfd.k8s-sigs.io", "scope": "Namespaced", "names": names, "versions": [version]}
    # The group belongs to a project of Kubernetes: the API server asks for the review of such a kind.
    notes = {"api-approved.kubernetes.io": "unapproved, a test"}
    cluster.api.call("POST", CRDS, {"metadata": {"name": FEATURES, "annotations": notes}, "spec": spec})
    try:
        path = FEATURE.rpartition("/")[0]
        until(lambda: charted.is_there(cluster.api, path), "the API server serves the kind")
        yield
    finally:
        cluster.api.call("DELETE", f"{CRDS}/{FEATURES}")
        until(lambda: not charted.is_there(cluster.api, f"{CRDS}/{FEATURES}"), "the kind is gone")


@pytest.mark.usefixtures("features", "image")
def test_a_values_file_of_nvidias_chart_works_as_it_is(cluster: Cluster, four: Machine, space: Api):
    before = charted.sockets()
    four.hang("nvmlInit")  # the driver is slow, as after a boot
    charted.install(values(replicas=4))
    plugin, labels = Installed(space), Installed(space, "gfd")
    web = plugin.web()
    assert web.wait_failing("/startupz", "scanned") == "not yet scanned: nvidia"
    assert web.probe("/healthz") == WELL
    assert not plugin.is_ready()
    four.mend()
    for pod in (plugin, labels):
        pod.wait_ready()
    web.wait_all_well()
    wait_served(cluster, GPU, COUNT)
    until(lambda: charted.is_there(space, FEATURE), "there are labels for node-feature-discovery")
    assert space.get(FEATURE)["spec"]["labels"]["nvidia.com/gpu.count"] == str(COUNT)

    guest = cluster.run_pod("guest", {GPU: 1}, script=OPENS, runtimeClassName=vendor.CLASS)
    (held,) = cluster.ids(guest)
    (mine,) = [gpu for gpu in four.driver.gpus if gpu.uuid == held]
    assert guest.env()[vendor.ASKS] == held
    assert [line for line in guest.prints() if line.startswith("opens")] == [f"opens /dev/nvidia{mine.minor}"]
    instance = guest.container()["containerID"]

    label(cluster, **{LABEL: "sliced"})
    cluster.wait_offered(GPU, (COUNT - 1) * 4)  # the GPU of the guest is not given to a second pod
    assert (cluster.ids(guest), guest.container()["containerID"]) == ((held,), instance)
    cluster.remove_pods()
    cluster.wait_offered(GPU, COUNT * 4)
    sharers = [cluster.run_pod(f"shares-{number}", {GPU: 1}, runtimeClassName=vendor.CLASS) for number in range(6)]
    assert all(pod.env()[vendor.ASKS] in {gpu.uuid for gpu in four.driver.gpus} for pod in sharers)
    cluster.remove_pods()

    charted.upgrade(values(replicas=2), *WAIT)
    plugin.nudge()
    cluster.wait_offered(GPU, COUNT * 2)
    label(cluster, **{LABEL: None})
    cluster.wait_offered(GPU, COUNT)
    assert (plugin.restarts(), labels.restarts()) == (0, 0), "nothing was started anew"

    charted.run_helm("uninstall", RELEASE, *WAIT)
    until(lambda: not charted.left_behind(space), "everything of the release is gone", 60.0)
    until(lambda: not charted.is_there(space, FEATURE), "the labels are gone with their owner", 60.0)
    assert charted.sockets() == before
