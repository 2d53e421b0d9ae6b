"""`fairlead gke` under the true kubelet: nodes open in containers, GPUs come and go, XIDs are told on the Node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.cluster.rbac import FEATURES
from tests.node.account import Account
from tests.node.cluster import Cluster, Pod
from tests.node.daemon import Fairlead
from tests.node.nvidia import GPU, make_harmless, wait_served
from tests.node.rig.api import Api
from tests.node.rig.places import NODE
from tests.node.rig.steps import until
from tests.nvml import Driver, gpus
from tests.nvml import Node as Machine
from tests.nvml.library import compiled_or_skip

Make = Callable[[dict[str, Any]], Fairlead]
SCRIPT = (
    'for node in /dev/nvidia*; do : <>"$node" && echo "opens $node"; done; ls /usr/local/nvidia /etc/vulkan/icd.d; '
    "echo -- end; exec sleep 1000000"
)
CONTROL = ["/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"]
CONDITION = "XidCriticalError"
NODES = f"/api/v1/nodes/{NODE}"


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Machine]:
    compiled_or_skip()
    with Driver(gpus=gpus("A100", 3)).installed(tmp_path / "gpus") as machine:
        make_harmless(machine.root / "dev")
        yield machine


def start(daemon: Fairlead, machine: Machine, root: Path, *words: str, **env: str) -> None:
    (root / "driver/vulkan").mkdir(parents=True, exist_ok=True)
    (root / "driver/libcuda.so.1").touch()
    (root / "driver/vulkan/nvidia_icd.json").touch()
    flags = {
        "plugin-directory": "/var/lib/kubelet/device-plugins",
        "status-socket": daemon.socket,
        "host-root": machine.root,
        "dev-root": machine.root,
        "driver-root": machine.root,
        "host-path": root / "driver",
        "host-vulkan-icd-path": root / "driver/vulkan",
        "gpu-config": root / "gpu_config.json",
    }
    args = [f"-{name}={value}" for name, value in flags.items()]
    daemon.run("-m", "fairlead", "gke", "-logtostderr", *args, *words, env={**machine.env, **env})


def become(machine: Machine, driver: Driver) -> None:
    machine.become(driver)
    make_harmless(machine.root / "dev")


def opened(pod: Pod) -> list[str]:
    return sorted(line.removeprefix("opens ") for line in pod.prints() if line.startswith("opens"))


def condition(api: Api) -> Any:
    conditions = api.get(NODES)["status"]["conditions"]
    return next((one for one in conditions if one["type"] == CONDITION), None)


def test_nodes_open_in_the_container_and_capacity_follows_gpus_that_come_and_go(
    cluster: Cluster, fairlead: Make, three: Machine, tmp_path: Path
):
    daemon = fairlead({})
    start(daemon, three, tmp_path)
    wait_served(cluster, GPU, 3)
    assert sorted(cluster.offered(GPU)) == ["nvidia0", "nvidia1", "nvidia2"]
    pod = cluster.run_pod("one", {GPU: 1}, script=SCRIPT)
    (held,) = cluster.ids(pod)
    assert opened(pod) == sorted([*CONTROL, f"/dev/{held}"])
    assert {"libcuda.so.1", "nvidia_icd.json"} <= set(pod.prints())
    instance = pod.container()["containerID"]
    whole = three.driver
    mine = next(gpu for gpu in whole.gpus if f"nvidia{gpu.minor}" == held)
    become(three, replace(whole, gpus=(mine,)))
    until(lambda: (cluster.numbers(GPU) or (0, 0))[0] == 1, "only the GPU that is held is allocatable")
    become(three, whole)
    until(lambda: (cluster.numbers(GPU) or (0, 0))[0] == 3, "all GPUs are allocatable again")
    rest = cluster.run_pod("rest", {GPU: 2}, script=SCRIPT)
    assert held not in cluster.ids(rest)
    assert pod.is_ready()
    assert pod.container()["containerID"] == instance


def test_a_change_over_keeps_pods_and_their_shares(cluster: Cluster, fairlead: Make, three: Machine, tmp_path: Path):
    shares = '{"GPUSharingConfig": {"GPUSharingStrategy": "time-sharing", "MaxSharedClientsPerGPU": 2}}'
    (tmp_path / "gpu_config.json").write_text(shares)
    old, new = fairlead({}), fairlead({})
    start(old, three, tmp_path)
    wait_served(cluster, GPU, 6)
    pod = cluster.run_pod("share", {GPU: 1}, script=SCRIPT)
    held, instance = cluster.ids(pod), pod.container()["containerID"]
    old.end()
    cluster.wait_offered(GPU, 0)
    start(new, three, tmp_path)
    wait_served(cluster, GPU, 6)
    assert pod.is_ready()
    assert (cluster.ids(pod), pod.container()["containerID"]) == (held, instance)


def test_xids_are_told_on_the_node_with_the_rights_of_the_guide(
    cluster: Cluster, fairlead: Make, three: Machine, tmp_path: Path
):
    features = ("`fairlead gke -enable-health-monitoring`", "`fairlead gke -publish-driver-version`")
    account = Account(tmp_path, [rule for feature in features for rule in FEATURES[feature]])
    api, daemon = Api(), fairlead({})
    try:
        words = ("-enable-health-monitoring", "-publish-driver-version")
        start(daemon, three, tmp_path, *words, NODE_NAME=NODE, KUBECONFIG=str(account.file))
        wait_served(cluster, GPU, 3)
        three.xid(0, 79)
        until(lambda: condition(api) is not None, "the Node has the condition")
        found = condition(api)
        assert (found["status"], found["reason"]) == ("True", '{"79":true}')
        assert found["message"] == api.get(NODES)["status"]["nodeInfo"]["bootID"]
        three.xid(1, 48)
        until(lambda: condition(api)["reason"] == '{"48":true,"79":true}', "the condition has both XIDs")
        until(lambda: (cluster.numbers(GPU) or (0, 0))[0] == 2, "XID 48 withdraws its GPU, 79 does not")
        events = api.get("/api/v1/namespaces/default/events")["items"]
        told = {one["message"] for one in events if one["reason"] == "XIDError"}
        assert {"Caught XID error, XID=79", "Caught XID error, XID=48"} <= told
        assert any(one["type"] == "Ready" for one in api.get(NODES)["status"]["conditions"])
        full = "cloud.google.com/cuda.driver-version.full"
        until(lambda: cluster.annotations().get(full) == three.driver.driver_version, "the driver's version is told")
    finally:
        daemon.end()
        remove = {"status": {"conditions": [{"$patch": "delete", "type": CONDITION}]}}
        api.call("PATCH", f"{NODES}/status", remove, "application/strategic-merge-patch+json")
        account.remove()
    assert condition(api) is None
