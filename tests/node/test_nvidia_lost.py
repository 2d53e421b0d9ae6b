"""A GPU falls off the bus of a live node. Beside ours, NVIDIA's plugin does the same in tests/peers/nvidia."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node.cluster import Cluster
from tests.node.nvidia import GPU, Machine, machine, wait_served
from tests.nvml import Driver, gpus


@pytest.fixture
def eight(cluster: Cluster) -> Iterator[Machine]:
    with machine(Driver(gpus=gpus("H100", 8))) as made:
        yield made
        cluster.remove_pods()  # before the plugin ends


def test_every_pod_that_fits_on_the_other_seven_is_admitted(cluster: Cluster, eight: Machine):
    eight.ours.start()
    wait_served(cluster, GPU, 8)
    before = [cluster.run_pod("two", {GPU: 2}), cluster.run_pod("one", {GPU: 1})]
    held = {one for pod in before for one in cluster.ids(pod)}
    uuids = [gpu.uuid for gpu in eight.node.driver.gpus]
    lost = next(uuid for uuid in uuids if uuid not in held)
    eight.node.lose(uuids.index(lost))
    cluster.wait_numbers(GPU, 7, 8)
    after = [cluster.run_pod(f"again-{size}", {GPU: size}) for size in (1, 3)]
    assert {one for pod in after for one in cluster.ids(pod)} == set(uuids) - held - {lost}, "all that is left"
    before[0].delete()  # and what is given back
    back = cluster.run_pod("back", {GPU: 2})
    assert lost not in cluster.ids(back)
    assert all(pod.is_ready() for pod in (before[1], *after, back))
