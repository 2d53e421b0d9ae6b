"""As NVIDIA's chart mounts it, without pod-resources: the kubelet's checkpoint says what is free."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from tests.node.cluster import Cluster
from tests.node.nvidia import GPU, Machine, machine, wait_served
from tests.nvml import Driver, gpus

LEAVES_S = 180.0  # a minute in which an Allocate may be under way, and the pace of looking


@pytest.fixture
def four(cluster: Cluster) -> Iterator[Machine]:
    with machine(Driver(gpus=gpus("H100", 4))) as made:
        yield made
        cluster.remove_pods()  # before the plugin ends


def test_gpus_that_left_go_from_the_list_when_no_pod_holds_them(cluster: Cluster, four: Machine):
    four.ours.start("--pod-resources=/nowhere/pod-resources/kubelet.sock")
    wait_served(cluster, GPU, 4)
    holder = cluster.run_pod("holds", {GPU: 1})
    (held,) = cluster.ids(holder)
    driver = four.node.driver
    free = next(gpu.uuid for gpu in driver.gpus if gpu.uuid != held)
    four.node.become(replace(driver, gpus=tuple(gpu for gpu in driver.gpus if gpu.uuid not in {held, free})))
    cluster.wait_numbers(GPU, 2, 4)
    cluster.wait_numbers(GPU, 2, 3, patience_s=LEAVES_S)
    assert holder.is_ready(), "the pod keeps what it has, and its GPU stays listed"
    holder.delete()
    cluster.run_pod("next", {GPU: 1})  # the kubelet forgets a pod at its next allocation
    cluster.wait_numbers(GPU, 2, 2, patience_s=LEAVES_S)
