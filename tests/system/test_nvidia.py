"""NVIDIA GPUs on a node: the real daemon on a simulated driver, with real event waits, under the stand-in kubelet."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.nvml import Driver, gpus
from tests.nvml import Node as Machine
from tests.nvml.models import partitioned
from tests.recorded.stage import eventually
from tests.system.rig import GPU, PATIENCE_S, Node, running
from tests.unit.backends.nvidia.drivers import installed, options

from fairlead.app.signals import Signals
from fairlead.model.names import DeviceId
from fairlead.testing import Kubelet

MIXED: list[dict[str, Any]] = [
    {"match": {"attributes": {"profile": "*"}}, "resource": "nvidia.com/mig-{profile}"},
    {"resource": GPU},
]
# A fault that only a reset ends is held for minutes. A test does not wait for minutes.
SOON = {"faults": {"xid-79": {"hold": "10ms"}, "xid-48": {"hold": "10ms"}}}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with installed(Driver(gpus=gpus("A100", 8)), tmp_path) as machine:
        yield machine


@asynccontextmanager
async def serving(
    kubelet: Kubelet, root: Path, machine: Machine, rules: list[dict[str, Any]] | None = None, **more: Any
) -> AsyncIterator[Node]:
    config = {
        "backends": [{"kind": "nvidia", **options(machine, **{"health": SOON, **more})}],
        "rules": rules or [{"resource": GPU}],
        "health": {
            "probeInterval": "20ms",
            "probeDeadline": "10s",
            "hold": "20ms",
            "probation": "20ms",
            "cleanProbes": 1,
            "suspect": "60s",
        },
        "scan": {"interval": "1h"},
    }
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in config.items())  # JSON is YAML
    async with running(kubelet, root, text) as node:
        yield node


async def test_an_xid_withdraws_its_gpu_and_it_comes_back(
    kubelet: Kubelet, kubelet_root: Path, machine: Machine
) -> None:
    async with serving(kubelet, kubelet_root, machine) as node:
        await node.ready()
        lame = machine.driver.gpus[3].uuid
        machine.xid(3, 79)
        await node.until_fact("unhealthy", device=lame)
        tracks = node.daemon.engine.sources.live["nvidia"].tracks
        assert await eventually(lambda: bool(tracks[DeviceId(lame)].signs and tracks[DeviceId(lame)].clean))
        assert node.find("probation", device=lame) is None  # clean probes are not enough
        machine.load_anew()
        await node.until_fact("healthy", device=lame)
        await kubelet.wait_for_allocatable(GPU, 8, PATIENCE_S)
        states = [fact.kind for fact in node.facts if fact.keys.get("device") == lame]
        assert states == ["device-found", "unhealthy", "cause-cured", "probation", "healthy"]


async def test_a_hangup_opens_a_new_session_and_gpus_that_are_gone_turn_unhealthy(
    kubelet: Kubelet, kubelet_root: Path, machine: Machine
) -> None:
    async with serving(kubelet, kubelet_root, machine) as node:
        await node.ready()
        gone = machine.driver.gpus[6:]
        machine.become_unseen(replace(machine.driver, gpus=machine.driver.gpus[:6]))
        with Signals(node.daemon.stop, partial(node.daemon.reload, fresh=True)):  # as `app.start` does
            os.kill(os.getpid(), signal.SIGHUP)
            await node.until_fact("device-gone", device=gone[0].uuid)
        await kubelet.wait_for_allocatable(GPU, 6, PATIENCE_S)
        for gpu in gone:
            await node.until_fact("device-gone", device=gpu.uuid)
        machine.xid(5, 79)  # and the others are listened to
        await node.until_fact("unhealthy", device=machine.driver.gpus[5].uuid)


async def test_every_slot_of_a_shared_gpu_follows_it(kubelet: Kubelet, kubelet_root: Path, machine: Machine) -> None:
    rules = [{"resource": GPU, "replicas": 4}]
    async with serving(kubelet, kubelet_root, machine, rules, health={}) as node:
        await node.ready(count=32)
        machine.xid(0, 48)
        await kubelet.wait_for_allocatable(GPU, 28, PATIENCE_S)
        ill = {slot for slot, health in kubelet.devices(GPU).items() if health == "Unhealthy"}
        assert ill == {f"{machine.driver.gpus[0].uuid}::{n}" for n in range(4)}


async def test_a_gpu_off_the_bus_with_seven_in_use_rejects_no_pod_that_fits(
    kubelet: Kubelet, kubelet_root: Path, machine: Machine
) -> None:
    async with serving(kubelet, kubelet_root, machine) as node:
        await node.ready()
        pods = [await kubelet.run_pod(f"p{n}", {"main": {GPU: 1}}) for n in range(7)]
        used = {one for pod in pods for one in pod.containers["main"].devices[GPU]}
        (last,) = {gpu.uuid for gpu in machine.driver.gpus} - used
        machine.lose([gpu.uuid for gpu in machine.driver.gpus].index(last))
        await kubelet.wait_for_allocatable(GPU, 7, PATIENCE_S)
        for pod in pods[:3]:
            await kubelet.delete_pod(pod)
        for size in (1, 2):
            pod = await kubelet.run_pod(f"again{size}", {"main": {GPU: size}})
            assert pod.phase == "Running", pod.message
            assert last not in pod.containers["main"].devices[GPU]
        machine.mend()
        await kubelet.wait_for_allocatable(GPU, 8, PATIENCE_S)


async def test_a_driver_that_hangs_on_one_gpu_keeps_no_pod_waiting(
    kubelet: Kubelet, kubelet_root: Path, machine: Machine
) -> None:
    async with serving(kubelet, kubelet_root, machine) as node:
        await node.ready()
        hanging = machine.driver.gpus[5].uuid
        machine.hang("nvmlDeviceGetMemoryInfo", gpu=5)
        await node.until_fact("unhealthy", device=hanging)
        await kubelet.wait_for_allocatable(GPU, 7, PATIENCE_S)
        pod = await asyncio.wait_for(kubelet.run_pod("train", {"main": {GPU: 7}}), PATIENCE_S)
        assert pod.phase == "Running", pod.message
        assert not any(fact.kind == "unhealthy" and fact.keys["device"] != hanging for fact in node.facts)
        machine.mend()
        await node.until_fact("healthy", device=hanging)


async def test_gpus_that_are_plugged_in_are_offered_without_a_restart(
    kubelet: Kubelet, kubelet_root: Path, machine: Machine
) -> None:
    machine.become(replace(machine.driver, gpus=machine.driver.gpus[:2]))
    async with serving(kubelet, kubelet_root, machine) as node:
        await node.ready(count=2)
        machine.become(replace(machine.driver, gpus=gpus("A100", 8)))
        await node.ready(count=8)
        machine.xid(7, 79)  # and they are listened to
        await node.until_fact("unhealthy", device=machine.driver.gpus[7].uuid)


async def test_mig_that_is_cut_anew_changes_the_resources(
    kubelet: Kubelet, kubelet_root: Path, machine: Machine
) -> None:
    whole = gpus("A100", 2)
    machine.become(replace(machine.driver, gpus=whole))
    async with serving(kubelet, kubelet_root, machine, MIXED, mig="mixed") as node:
        await node.ready(count=2)
        parts = partitioned(whole[0], "3g.20gb", "3g.20gb")
        machine.become(replace(machine.driver, gpus=(parts, whole[1])))
        await kubelet.wait_for_allocatable("nvidia.com/mig-3g.20gb", 2, PATIENCE_S)
        await kubelet.wait_for_allocatable(GPU, 1, PATIENCE_S)
        first, second = parts.migs
        machine.xid(0, 48, gi=second.gi, ci=second.ci)
        await node.until_fact("unhealthy", device=second.uuid)
        assert node.find("unhealthy", device=first.uuid) is None


async def test_a_driver_that_comes_late_is_waited_for(kubelet: Kubelet, kubelet_root: Path, machine: Machine) -> None:
    there = machine.driver
    machine.become(replace(there, gpus=(), dev_nodes=()))
    machine.unload()
    async with serving(kubelet, kubelet_root, machine) as node:
        failed = await node.until_fact("scan-failed")
        assert "kernel module nvidia is not loaded" in failed.keys["reason"]
        machine.become(there)  # with its nodes in /dev, which is how it is noticed
        await node.ready()


async def test_a_gpu_that_cannot_be_read_is_told_and_the_others_are_offered(
    kubelet: Kubelet, kubelet_root: Path, machine: Machine
) -> None:
    machine.fault("nvmlDeviceGetMinorNumber", 3, gpu=2)
    async with serving(kubelet, kubelet_root, machine) as node:
        await node.ready(count=7)
        told = await node.until_fact("scan-problem")
        assert told.keys["reason"].startswith("GPU 2: nvmlDeviceGetMinorNumber: Not Supported")


async def test_an_error_of_the_event_set_withdraws_nothing(
    kubelet: Kubelet, kubelet_root: Path, machine: Machine
) -> None:
    async with serving(kubelet, kubelet_root, machine) as node:
        await node.ready()
        machine.fail_wait(999)
        failed = await node.until_fact("watch-failed")
        assert "nvmlEventSetWait" in failed.keys["reason"]
        assert not any(fact.kind == "unhealthy" for fact in node.facts)
        assert set(kubelet.devices(GPU).values()) == {"Healthy"}
