"""The change-over on a live node: NVIDIA's plugin goes, ours comes, and back again. Pods do not notice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.node.cluster import Cluster, Pod
from tests.node.conftest import Measure
from tests.node.nvidia import GPU, Machine, Plugin, machine, wait_served
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.traffic import Traffic
from tests.nvml import Driver, gpus

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
SHARED = "nvidia.com/gpu.shared"
TIME_SLICING = """\
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    resources:
    - name: nvidia.com/gpu
      replicas: 4
"""


@pytest.fixture
def eight(cluster: Cluster) -> Iterator[Machine]:
    with machine(Driver(gpus=gpus("H100", 8))) as made:
        yield made
        cluster.remove_pods()  # before the plugin ends


@dataclass(frozen=True, slots=True)
class Tenant:
    """A pod, and what it had when it came."""

    pod: Pod
    ids: tuple[str, ...]
    instance: str

    def check(self, cluster: Cluster) -> None:
        """The same devices, in the same container."""
        assert self.pod.is_ready()
        assert cluster.ids(self.pod) == self.ids
        assert self.pod.container()["containerID"] == self.instance

    def crash(self, cluster: Cluster) -> Tenant:
        """Its container starts again, on the same devices."""
        again = self.pod.container()["restartCount"] + 1
        self.pod.crash()
        assert visible(self.pod, again) == {gpu(one) for one in self.ids}
        assert cluster.ids(self.pod) == self.ids
        return Tenant(self.pod, self.ids, self.pod.container()["containerID"])


def move_in(cluster: Cluster, name: str, resource: str, count: int) -> Tenant:
    pod = cluster.run_pod(name, {resource: count})
    ids = cluster.ids(pod)
    assert len(ids) == count
    assert visible(pod) == {gpu(one) for one in ids}
    return Tenant(pod, ids, pod.container()["containerID"])


def visible(pod: Pod, instance: int = 0) -> set[str]:
    return set(pod.env(instance=instance)[VISIBLE].split(","))


def gpu(slot: str) -> str:
    """Of a replica, its GPU."""
    return slot.partition("::")[0]


def apart(*tenants: Tenant) -> bool:
    held = [one for tenant in tenants for one in tenant.ids]
    return len(held) == len(set(held))


def swap(
    cluster: Cluster,
    resource: str,
    count: int,
    plugins: tuple[Plugin, Plugin],
    flags: tuple[str, ...],
    measure: Measure,
) -> None:
    """One plugin goes, the other comes, with the same flags, while pods keep coming.

    Refused are at most those that the kubelet meets while there is nobody to ask.
    """
    old, new = plugins
    with Traffic(cluster, {resource: 1}, straight=resource == SHARED) as traffic:  # there is room for all of them
        began = time.time()
        old.end()
        cluster.wait_offered(resource, 0)
        started = new.start(*flags)
        listed = cluster.wait_offered(resource, count)
        restored = cluster.wait_numbers(resource, count, count, after=listed)
        traffic.wait_more(2)
    refused = traffic.refused()
    print(f"{old.name} → {new.name}: {traffic.count} pods came, {len(refused)} of them were refused: {refused}")
    measure(f"{old.name} → {new.name}: the old list ends, the new one starts", listed - began)
    measure(f"{old.name} → {new.name}: of this, the new plugin's start", listed - started)
    measure(f"{old.name} → {new.name}: until Node allocatable is as before", restored - began)
    outside = [one for one in refused if not int(began) <= one.at <= listed]
    assert not outside, f"nobody served from {began} to {listed}, but these were refused before or after"


def restart_kubelet(cluster: Cluster, resource: str, count: int) -> None:
    stop_kubelet()
    start_kubelet(wait=False)
    cluster.wait_offered(resource, count)


def test_nvidias_plugin_goes_ours_comes_and_back_again(cluster: Cluster, eight: Machine, measure: Measure):
    eight.nvidias.start()
    wait_served(cluster, GPU, 8)
    first, second = move_in(cluster, "first", GPU, 1), move_in(cluster, "second", GPU, 2)

    swap(cluster, GPU, 8, (eight.nvidias, eight.ours), (), measure)
    for tenant in (first, second):
        tenant.check(cluster)
    first = first.crash(cluster)
    restart_kubelet(cluster, GPU, 8)
    for tenant in (first, second):
        tenant.check(cluster)
    third = move_in(cluster, "third", GPU, 2)
    assert apart(first, second, third)

    swap(cluster, GPU, 8, (eight.ours, eight.nvidias), (), measure)
    for tenant in (first, second, third):
        tenant.check(cluster)
    third = third.crash(cluster)
    restart_kubelet(cluster, GPU, 8)
    for tenant in (first, second, third):
        tenant.check(cluster)
    fourth = move_in(cluster, "fourth", GPU, 3)
    assert apart(first, second, third, fourth)


def test_shared_gpus_change_over_as_well(cluster: Cluster, eight: Machine, measure: Measure):
    eight.place.write_config(TIME_SLICING)
    flags = ("--config-file=/config/config.yaml",)
    eight.nvidias.start(*flags)
    wait_served(cluster, SHARED, 32)
    first = move_in(cluster, "first", SHARED, 2)
    swap(cluster, SHARED, 32, (eight.nvidias, eight.ours), flags, measure)
    first.check(cluster)
    first = first.crash(cluster)
    second = move_in(cluster, "second", SHARED, 30)
    assert apart(first, second)
    first.check(cluster)
