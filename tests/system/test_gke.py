"""`fairlead gke` on a node: the real daemon on a simulated driver, from its own flags and config file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from tests.apiserver.metadata import metadata_server
from tests.apiserver.server import ApiServer, api_server
from tests.nvml import Driver, gpus
from tests.nvml import Node as Machine
from tests.nvml.models import partitioned
from tests.recorded.stage import eventually
from tests.system.rig import GPU, PATIENCE_S, Node, running
from tests.system.rights import right
from tests.system.webclient import get
from tests.unit.backends.nvidia.drivers import installed

from fairlead.backends.nvidia import library
from fairlead.backends.nvidia.driver import NO_NVML
from fairlead.cluster.rbac import FEATURES
from fairlead.dialects.gke.command import read_command_line
from fairlead.model.names import DeviceId
from fairlead.testing import Kubelet

NODE = "node-1"
SOON = {"probeInterval": "20ms", "probeDeadline": "10s", "hold": "20ms", "probation": "20ms", "cleanProbes": 1}
HEALTH = "-enable-health-monitoring"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with installed(Driver(gpus=gpus("A100", 3)), tmp_path / "machine") as machine:
        if not machine.has_device_nodes:
            pytest.skip("device nodes need root")
        yield machine


@asynccontextmanager
async def serving(
    kubelet: Kubelet, root: Path, machine: Machine, *words: str, file: object = None, **environ: str
) -> AsyncIterator[Node]:
    (root / "gpu.json").write_text(json.dumps(file or {}))
    flags = {
        "plugin-directory": kubelet.plugin_dir,
        "pod-resources": kubelet.podresources_socket,
        "status-socket": root / "gke.sock",
        "host-root": machine.root,
        "driver-root": machine.root,
        "mps-control": root / "mps-control",
        "gpu-config": root / "gpu.json",
        "gpu-fraction-divisor-file": root / "none",
    }
    args = [*(f"-{name}={value}" for name, value in flags.items()), *words]
    config: dict[str, Any] = dict(read_command_line(args, environ).translate().config)
    backend = config["backends"][0]
    faults = {f"xid-{xid}": {"hold": "10ms"} for xid in (48, 79)}
    backend["health"] = {**backend["health"], "eventWait": "50ms", "faults": faults}
    config |= {"health": SOON, "scan": {"interval": "1h"}}
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in config.items())
    async with running(kubelet, root, text) as node:
        yield node


@asynccontextmanager
async def cluster(root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        status = {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "boot-2"}}
        server.store.put("nodes", {"metadata": {"name": NODE, "uid": "u1"}, "status": status})
        monkeypatch.setenv("KUBECONFIG", server.write_kubeconfig(root / "kubeconfig"))
        monkeypatch.delenv("NODE_NAME", raising=False)
        yield server


def condition(server: ApiServer) -> str:
    conditions = server.store.get("nodes", NODE)["status"]["conditions"]
    return next((one["reason"] for one in conditions if one["type"] == "XidCriticalError"), "")


def counted(server: ApiServer, count: int) -> bool:
    return [one["count"] for one in server.store.all("events", "default", "")] == [count]


def minor(machine: Machine, number: int) -> Path:
    return machine.root / f"dev/nvidia{number}"


async def test_capacity_follows_nodes_that_come_and_go(kubelet: Kubelet, kubelet_root: Path, machine: Machine):
    async with serving(kubelet, kubelet_root, machine) as node:
        await node.ready(count=3)
        whole = machine.driver
        machine.become(replace(whole, gpus=whole.gpus[:2]))
        await kubelet.wait_for_allocatable(GPU, 2, PATIENCE_S)
        machine.become(whole)
        await kubelet.wait_for_allocatable(GPU, 3, PATIENCE_S)
        assert sum(call.method == "GetDevicePluginOptions" for call in kubelet.calls) == 1  # nothing restarts


async def test_a_pod_keeps_its_gpu_while_others_come_and_go(kubelet: Kubelet, kubelet_root: Path, machine: Machine):
    async with serving(kubelet, kubelet_root, machine) as node:
        await node.ready(count=3)
        pod = await kubelet.run_pod("p", {"main": {GPU: 1}})
        (held,) = pod.containers["main"].devices[GPU]
        whole = machine.driver
        mine = next(gpu for gpu in whole.gpus if f"nvidia{gpu.minor}" == held)
        machine.become(replace(whole, gpus=(mine,)))
        await kubelet.wait_for_allocatable(GPU, 1, PATIENCE_S)
        machine.become(whole)
        await kubelet.wait_for_allocatable(GPU, 3, PATIENCE_S)
        again = await kubelet.run_pod("q", {"main": {GPU: 2}})
        assert held not in again.containers["main"].devices[GPU]


async def test_a_gpu_comes_back_after_a_reset(
    kubelet: Kubelet, kubelet_root: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    async with cluster(kubelet_root, monkeypatch) as server:
        async with serving(kubelet, kubelet_root, machine, HEALTH, NODE_NAME=NODE) as node:
            await node.ready(count=3)
            machine.xid(1, 48)
            await node.until_fact("unhealthy", device="nvidia1")
            assert await eventually(lambda: condition(server) == '{"48":true}')
            tracks = node.daemon.engine.sources.live["nvidia"].tracks
            assert await eventually(lambda: bool(tracks[DeviceId("nvidia1")].signs))  # as they were before the reset
            machine.load_anew()
            await node.until_fact("healthy", device="nvidia1")
            await kubelet.wait_for_allocatable(GPU, 3, PATIENCE_S)
        assert condition(server) == '{"48":true}'  # it tells of the boot, not of the GPU


async def test_a_kubelet_that_comes_late_is_registered_with(kubelet: Kubelet, kubelet_root: Path, machine: Machine):
    await kubelet.stop()
    async with serving(kubelet, kubelet_root, machine) as node:
        await node.until_fact("backoff")
        await kubelet.start()
        await kubelet.wait_for_allocatable(GPU, 3, PATIENCE_S)


async def test_gpus_are_found_by_their_nodes_alone(kubelet: Kubelet, kubelet_root: Path, machine: Machine):
    async with serving(kubelet, kubelet_root, machine, "-discovery=nodes") as node:
        await node.ready(count=3)
        minor(machine, 2).unlink()
        await kubelet.wait_for_allocatable(GPU, 2, PATIENCE_S)
        assert set(kubelet.devices(GPU)) == {"nvidia0", "nvidia1", "nvidia2"}
        (backend,) = node.status().backends
        assert backend.problem == ""


@pytest.mark.parametrize("words", [("-discovery=any",), ()])  # the same: it is the default
async def test_without_the_library_of_nvml_gpus_are_found_by_their_nodes_and_status_says_so(
    words: tuple[str, ...],
    kubelet: Kubelet,
    kubelet_root: Path,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(library, "NAME", "libnvidia-ml.so.none")  # the true one is in this process, for other tests
    async with serving(kubelet, kubelet_root, machine, *words) as node:
        await node.ready(count=3)
        assert set(kubelet.devices(GPU).values()) == {"Healthy"}
        pod = await kubelet.run_pod("p", {"main": {GPU: 1}})
        (held,) = pod.containers["main"].devices[GPU]
        assert held in {"nvidia0", "nvidia1", "nvidia2"}
        assert node.status().problems == (f"backend nvidia: {NO_NVML}",)
        minor(machine, 2).unlink()
        await kubelet.wait_for_allocatable(GPU, 2, PATIENCE_S)


async def test_instances_are_found_by_their_nodes_alone(kubelet: Kubelet, kubelet_root: Path, tmp_path: Path):
    cut = tuple(partitioned(gpu, "3g.20gb", "3g.20gb") for gpu in gpus("A100", 2))
    with installed(Driver(gpus=cut, mig_minors=True), tmp_path / "m") as machine:
        words = ("-discovery=nodes",)
        async with serving(kubelet, kubelet_root, machine, *words, file={"GPUPartitionSize": "3g.20gb"}) as node:
            await node.ready(count=4)
            pod = await kubelet.run_pod("p", {"main": {GPU: 1}})
            container = pod.containers["main"]
            (held,) = container.devices[GPU]
            assert held in {"nvidia0/gi1", "nvidia0/gi2", "nvidia1/gi1", "nvidia1/gi2"}


async def test_shares_are_unhealthy_while_the_mps_daemon_is_down(
    kubelet: Kubelet, kubelet_root: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    from fairlead.backends.nvidia.mps import supervisor

    monkeypatch.setattr(supervisor, "PACE_S", 0.05)
    control = kubelet_root / "mps-control"
    control.write_text("#!/bin/sh\nexit 1\n")
    control.chmod(0o755)
    shared = {"GPUSharingConfig": {"GPUSharingStrategy": "mps", "MaxSharedClientsPerGPU": 2}}
    async with serving(kubelet, kubelet_root, machine, file=shared) as node:
        await node.until_fact("nothing-offered")
        control.write_text("#!/bin/sh\ncat > /dev/null\necho 100.0\n")
        await kubelet.wait_for_allocatable(GPU, 6, PATIENCE_S)
        control.write_text("#!/bin/sh\nexit 1\n")
        await kubelet.wait_for_allocatable(GPU, 0, PATIENCE_S)
        control.write_text("#!/bin/sh\ncat > /dev/null\necho 100.0\n")
        await kubelet.wait_for_allocatable(GPU, 6, PATIENCE_S)


async def test_shares_that_a_pod_holds_keep_their_gpu_when_sharing_ends(
    kubelet: Kubelet, kubelet_root: Path, machine: Machine
):
    shared = {"GPUSharingConfig": {"GPUSharingStrategy": "time-sharing", "MaxSharedClientsPerGPU": 2}}
    async with serving(kubelet, kubelet_root, machine, file=shared) as node:
        await node.ready(count=6)
        pod = await kubelet.run_pod("p", {"main": {GPU: 1}})
        (held,) = pod.containers["main"].devices[GPU]
    async with serving(kubelet, kubelet_root, machine) as node:
        await kubelet.wait_for_allocatable(GPU, 2, PATIENCE_S)
        owner = held.partition("/")[0]
        assert kubelet.devices(GPU)[owner] == "Unhealthy"


@pytest.mark.parametrize(
    ("feature", "words"),
    [
        ("`fairlead gke -enable-health-monitoring`", [HEALTH]),
        ("`fairlead gke -publish-driver-version`", ["-publish-driver-version"]),
    ],
)
async def test_it_uses_exactly_these_rights(
    feature: str,
    words: list[str],
    kubelet: Kubelet,
    kubelet_root: Path,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
):
    rights = {(verb, rule.resource) for rule in FEATURES[feature] for verb in rule.verbs}
    async with cluster(kubelet_root, monkeypatch) as server:
        server.allowed = rights
        async with serving(kubelet, kubelet_root, machine, *words, NODE_NAME=NODE) as node:
            await node.ready(count=3)
            if HEALTH in words:
                for count in (1, 2):
                    machine.xid(0, 79)
                    assert await eventually(partial(counted, server, count))
                assert await eventually(lambda: condition(server) == '{"79":true}')
            else:
                assert await eventually(lambda: bool(server.store.get("nodes", NODE)["metadata"].get("annotations")))
            assert node.daemon.problems == {}
        assert {(verb.replace("post", "create"), what) for verb, what in map(right, server.requests)} == rights


async def test_the_node_is_named_by_the_metadata_server(
    kubelet: Kubelet, kubelet_root: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    async with (
        cluster(kubelet_root, monkeypatch) as server,
        metadata_server(NODE.encode()) as host,
        serving(kubelet, kubelet_root, machine, HEALTH, f"-metadata-server={host}") as node,
    ):
        await node.ready(count=3)
        machine.xid(2, 63)
        assert await eventually(lambda: condition(server) == '{"63":true}')
        assert set(kubelet.devices(GPU).values()) == {"Healthy"}
        assert node.daemon.problems == {}


async def test_gpus_are_served_while_the_node_has_no_name(
    kubelet: Kubelet, kubelet_root: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    nowhere = "-metadata-server=127.0.0.1:1"
    async with (
        cluster(kubelet_root, monkeypatch),
        serving(kubelet, kubelet_root, machine, HEALTH, nowhere) as node,
    ):
        await node.ready(count=3)
        await kubelet.run_pod("p", {"main": {GPU: 2}})
        assert await eventually(lambda: "127.0.0.1:1" in node.daemon.problems.get("condition XidCriticalError", ""))


async def test_metrics_have_the_names_of_theirs(kubelet: Kubelet, kubelet_root: Path, machine: Machine):
    words = ("-enable-container-gpu-metrics", "-gpu-metrics-port=0")
    async with serving(kubelet, kubelet_root, machine, *words) as node:
        await node.ready(GPU, 3)
        machine.become(Driver(gpus=gpus("A100", 3, busy_percent=75)))
        pod = await kubelet.run_pod("train", {"main": {GPU: 1}})
        (held,) = pod.containers["main"].devices[GPU]
        text = (await get(node, "/metrics"))[1]
        found = {
            (sample.name, sample.labels.get("pod", "")): sample
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        (device,) = (each for each in node.daemon.engine.inventory.devices if each.id == held)
        of_pod = found["duty_cycle", "train"]
        assert of_pod.value == 75
        assert of_pod.labels["accelerator_id"] == device.attributes["gpu"]
        assert of_pod.labels["make"] == "nvidia"
        assert found["memory_total", "train"].value == device.memory_bytes
        assert found["memory_used", "train"].value >= 0
        assert found["request", "train"].value == 1
        assert (
            sum(
                sample.name == "duty_cycle_gpu_node"
                for f in text_string_to_metric_families(text)
                for sample in f.samples
            )
            == 3
        )
