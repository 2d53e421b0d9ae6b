"""AMD GPUs on the node: a tree of sysfs and device nodes that read and write as nothing, below a root of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.amd import machines
from tests.amd.tree import write
from tests.node.cluster import Cluster
from tests.node.daemon import HEALTH, Fairlead
from tests.node.rig import settings

Make = Callable[[dict[str, Any]], Fairlead]
TWO = machines.vegas()
FIRST, SECOND = (gpu.address for gpu in TWO.gpus)
ONE = TWO.without(SECOND)
SPEC = settings.CDI / "amd.com-gpu.json"
NODES = {FIRST: ["card1", "renderD128"], SECOND: ["card2", "renderD129"]}
# Each node is opened for reading and writing: it must be there, be a device, and be allowed.
SCRIPT = 'for node in /dev/kfd /dev/dri/*; do : <>"$node" && echo "opens $node"; done; echo -- end; exec sleep 1000000'


def config(root: Path, resource: str, **options: Any) -> dict[str, Any]:
    backend = {"kind": "amd", "hostRoot": str(root), "devRoot": str(root), "poll": "1s", **options}
    return {"backends": [backend], "rules": [{"resource": resource}], "health": HEALTH}


def opened(gpu: str) -> list[str]:
    return ["opens /dev/kfd", *(f"opens /dev/dri/{name}" for name in NODES[gpu])]


@pytest.mark.parametrize("way", ["cdi-cri", "nodes"])
def test_a_container_opens_its_gpu_and_sees_no_other(
    cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path, way: str
):
    write(tmp_path / "host", TWO, true_nodes=True)
    daemon = fairlead(config(tmp_path / "host", resource, ways=[way], cdi={"directory": str(settings.CDI)}))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    pods = [cluster.run_pod(name, {resource: 1}, script=SCRIPT) for name in ("one", "two")]
    held = [cluster.ids(pod)[0] for pod in pods]
    assert sorted(held) == [FIRST, SECOND]
    for pod, gpu in zip(pods, held, strict=True):
        assert [line for line in pod.prints() if line.startswith("opens")] == opened(gpu)
    assert SPEC.exists() == (way == "cdi-cri")  # by nodes, the spec of the configuration before is gone


def test_a_gpu_comes_and_goes_while_a_pod_runs(cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path):
    root = write(tmp_path / "host", replace(TWO, driver=False), true_nodes=True)
    daemon = fairlead(config(root, resource))
    daemon.start()
    daemon.wait_fact("scan-failed")
    write(root, ONE, true_nodes=True)  # the driver comes late
    cluster.wait_numbers(resource, 1, 1)
    stays = cluster.run_pod("stays", {resource: 1}, script=SCRIPT)
    instance = stays.container()["containerID"]
    write(root, TWO, true_nodes=True)
    cluster.wait_numbers(resource, 2, 2)
    leaves = cluster.run_pod("leaves", {resource: 1}, script=SCRIPT)
    assert cluster.ids(leaves) == (SECOND,)
    assert [line for line in leaves.prints() if line.startswith("opens")] == opened(SECOND)
    write(root, ONE, true_nodes=True)
    cluster.wait_numbers(resource, 1, 2)  # one that is held stays listed, and starts no other pod
    assert leaves.is_ready()
    write(root, TWO, true_nodes=True)
    cluster.wait_numbers(resource, 2, 2)
    assert stays.is_ready()
    assert stays.container()["containerID"] == instance
    assert len(daemon.facts("device-found", device=FIRST)) == 1, "a daemon that was started again would find it again"


def test_an_uncorrectable_error_withdraws_a_gpu_until_the_driver_counts_anew(
    cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path
):
    root = write(tmp_path / "host", TWO, true_nodes=True)
    daemon = fairlead(config(root, resource))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    write(root, TWO.change(SECOND, ras=(("umc", "ue: 1\nce: 0\n"),)), true_nodes=True)
    cluster.wait_numbers(resource, 1, 2)
    daemon.wait_fact("unhealthy", device=SECOND)
    assert daemon.facts("unhealthy", device=FIRST) == []
    write(root, TWO.change(SECOND, ras=(("umc", "ue: 0\nce: 0\n"),)), true_nodes=True)
    cluster.wait_numbers(resource, 2, 2)
