"""`fairlead amd` under the true kubelet: its names, its nodes in containers, and a change-over that keeps pods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.amd import machines
from tests.amd.tree import write
from tests.node.cluster import Cluster, Pod
from tests.node.daemon import Fairlead
from tests.node.nvidia import wait_served
from tests.node.rig.node import start_kubelet, stop_kubelet

Make = Callable[[dict[str, Any]], Fairlead]
CUT, WHOLE = "amd.com/cpx_nps1", "amd.com/spx_nps1"
# The nodes of a container, as its own programs see them; each is opened.
SCRIPT = 'for node in /dev/kfd /dev/dri/*; do : <>"$node" && echo "opens $node"; done; echo -- end; exec sleep 1000000'


def machine() -> machines.Machine:
    """Two GPUs of MI308, whole, and two in four partitions each."""
    four = machines.Machine(machines.mi308().gpus[:4])
    for gpu in four.gpus[:2]:
        four = four.change(gpu.address, compute="SPX", parts=1)
    return four


def start(daemon: Fairlead, root: Path, *words: str) -> None:
    places = [f"--host-root={root}", f"--dev-root={root}", f"--status-socket={daemon.socket}"]
    daemon.run("-m", "fairlead", "amd", "-pulse=1", "-logtostderr=true", *places, *words)


def opened(pod: Pod) -> list[str]:
    return [line.removeprefix("opens /dev/") for line in pod.prints() if line.startswith("opens")]


def test_one_instance_goes_another_comes_and_pods_keep_their_partitions(
    cluster: Cluster, fairlead: Make, tmp_path: Path
):
    root = write(tmp_path / "host", machine(), true_nodes=True)
    mixed = "-resource_naming_strategy=mixed"
    old, new = fairlead({}), fairlead({})
    start(old, root, mixed)
    wait_served(cluster, WHOLE, 2)
    wait_served(cluster, CUT, 8)
    gpu = cluster.run_pod("gpu", {WHOLE: 1}, script=SCRIPT)
    parts = cluster.run_pod("parts", {CUT: 3}, script=SCRIPT)
    held = {pod.name: (cluster.ids(pod), pod.container()["containerID"]) for pod in (gpu, parts)}
    assert held["gpu"][0] == ("0000:0a:00.0",)
    assert held["parts"][0] == ("0000:a4:00.0", "amdgpu_xcp_1", "amdgpu_xcp_2")  # of one GPU
    assert opened(gpu) == ["kfd", "dri/card1", "dri/renderD128"]
    cards = [f"dri/card{number}" for number in (17, 18, 19)]
    assert opened(parts) == ["kfd", *cards, *(f"dri/renderD{number}" for number in (144, 145, 146))]

    old.end()
    cluster.wait_offered(CUT, 0)
    start(new, root, mixed)
    listed = cluster.wait_offered(CUT, 8)
    cluster.wait_numbers(CUT, 8, 8, after=listed)
    cluster.wait_offered(WHOLE, 2)
    stop_kubelet()
    start_kubelet(wait=False)
    cluster.wait_offered(CUT, 8)
    for pod in (gpu, parts):
        assert pod.is_ready()
        assert (cluster.ids(pod), pod.container()["containerID"]) == held[pod.name]
    rest = cluster.run_pod("rest", {CUT: 5}, script=SCRIPT)
    assert not {*cluster.ids(rest)} & {*held["parts"][0]}


def test_a_gpu_is_cut_anew_while_another_serves(cluster: Cluster, fairlead: Make, tmp_path: Path):
    four = machine()
    root = write(tmp_path / "host", four, true_nodes=True)
    daemon = fairlead({})
    start(daemon, root, "-resource_naming_strategy=mixed")
    wait_served(cluster, WHOLE, 2)
    stays = cluster.run_pod("stays", {WHOLE: 1}, script=SCRIPT)
    assert cluster.ids(stays) == ("0000:0a:00.0",)
    write(root, four.change("0000:80:00.0", compute="CPX", parts=4), true_nodes=True)
    wait_served(cluster, CUT, 12)
    assert stays.is_ready()
    assert cluster.ids(stays) == ("0000:0a:00.0",)
