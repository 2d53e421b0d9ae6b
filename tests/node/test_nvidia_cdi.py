"""GPUs that the runtime itself puts into a container, out of the CDI specs that the plugin has written."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.node.cluster import Cluster, Pod
from tests.node.nvidia import GPU, SPEC, Machine, machine, wait_served
from tests.nvml import Driver, gpus

VERSION = Driver().driver_version
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# Zeros are what the node's stand-ins for GPUs read as.
SCRIPT = (
    f"env; ls /dev {LIBRARIES} /usr/bin; head -c 1 /dev/nvidia[0-9]* | od -An -tx1; echo -- end; exec sleep 1000000"
)


@pytest.fixture
def two(cluster: Cluster) -> Iterator[Machine]:
    files = (f"lib/libcuda.so.{VERSION}", "/usr/bin/nvidia-smi")
    with machine(Driver(gpus=gpus("H100", 2), driver_files=files)) as made:
        yield made
        cluster.remove_pods()  # before the plugin ends


def flags(two: Machine) -> tuple[str, ...]:
    """The driver is elsewhere on the host: the runtime must be told where, not what the plugin sees."""
    return (
        "--device-list-strategy=cdi-cri",
        f"--driver-root={two.node.root}",
        f"--nvidia-cdi-hook-path={two.hook}",
    )


def check_inside(two: Machine, pod: Pod, held: str, instance: int = 0) -> None:
    """Its GPU and no other, the control nodes, the driver's files and the variables of the spec."""
    prints = pod.prints(instance=instance)
    (minor,) = [gpu.minor for gpu in two.node.driver.gpus if gpu.uuid == held]
    assert [line for line in prints if line in {"nvidia0", "nvidia1"}] == [f"nvidia{minor}"]
    assert {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"} <= set(prints)
    assert " 00" in prints, "it can be read"
    assert {f"libcuda.so.{VERSION}", f"libnvidia-ml.so.{VERSION}", "nvidia-smi"} <= set(prints)
    env = pod.env(instance=instance)
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void", "so that NVIDIA's own runtime keeps its hands off"
    assert env["NVIDIA_CTK_LIBCUDA_DIR"] == LIBRARIES


def test_a_container_gets_its_gpu_through_the_runtime_whoever_wrote_the_spec(cluster: Cluster, two: Machine):
    two.nvidias.start(*flags(two))
    wait_served(cluster, GPU, 2)
    before = cluster.run_pod("before", {GPU: 1}, script=SCRIPT)
    (first,) = cluster.ids(before)
    check_inside(two, before, first)

    two.nvidias.end()
    cluster.wait_offered(GPU, 0)
    theirs = json.loads(SPEC.read_text())
    two.ours.start(*flags(two))
    wait_served(cluster, GPU, 2)
    ours = json.loads(SPEC.read_text())
    names = {device["name"] for device in ours["devices"]}
    assert names == {device["name"] for device in theirs["devices"]}
    assert names == two.uuids()

    before.crash()  # it is made anew from our spec
    check_inside(two, before, first, instance=1)
    calls = len(two.hooks())
    after = cluster.run_pod("after", {GPU: 1}, script=SCRIPT)
    (second,) = cluster.ids(after)
    assert {first, second} == two.uuids()
    check_inside(two, after, second)
    assert any("update-ldcache" in call for call in two.hooks()[calls:])
