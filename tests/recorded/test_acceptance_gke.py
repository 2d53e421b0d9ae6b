"""The cases that the tests of Google's plugin pin, asked of ours as a whole: nodes, mounts, XIDs, NUMA."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.backends.nvidia import NvidiaBackend, open_backend
from fairlead.backends.nvidia.events import GpuEvent
from fairlead.backends.nvidia.nvml import XID
from fairlead.config.load import build
from fairlead.dialects.gke.command import read_command_line
from fairlead.engine.grants import make_grant
from fairlead.inject.merge import merge
from fairlead.inject.templates import render
from fairlead.kit.clock import SystemClock
from fairlead.model.device import Device
from fairlead.model.edits import Edits
from fairlead.model.health import Cause, CauseKind
from fairlead.model.inventory import ALL_HEALTHY, Inventory
from fairlead.model.names import DeviceId
from fairlead.policy.offering.rules import make_offering
from tests.nvml import Driver, Gpu, gpus
from tests.nvml import Node as Machine
from tests.nvml.models import partitioned
from tests.nvml.node import SINGLE_BIT_ECC
from tests.recorded.stage import eventually
from tests.unit.backends.nvidia.drivers import installed


class Heard:
    """What the backend reports: faults that withdraw a device."""

    def __init__(self) -> None:
        self.faults: list[tuple[str, str]] = []
        self.all: list[str] = []

    def fault(self, device: DeviceId, cause: Cause) -> None:
        self.all.append(cause.code)
        if cause.kind is not CauseKind.APPLICATION:
            self.faults.append((device, cause.code))

    def clear(self, device: DeviceId, code: str | None = None) -> None: ...

    def rescan(self) -> None: ...


@asynccontextmanager
async def found(
    root: Path, *cards: Gpu, config: object = None, words: tuple[str, ...] = (), **env: str
) -> AsyncIterator[tuple[Machine, NvidiaBackend, tuple[Device, ...]]]:
    (root / "gpu.json").write_text(json.dumps(config or {}))
    with installed(Driver(gpus=cards), root / "m") as machine:
        if not machine.has_device_nodes:
            pytest.skip("device nodes need root")
        places = [f"-host-root={machine.root}", f"-driver-root={machine.root}", f"-gpu-config={root / 'gpu.json'}"]
        made = read_command_line([*places, *words], env).translate().config["backends"][0]
        options: dict[str, Any] = {key: value for key, value in made.items() if key != "kind"}
        options["health"] = {**options["health"], "eventWait": "20ms"}
        backend = open_backend(options, SystemClock())
        try:
            yield machine, backend, (await backend.discover()).devices
        finally:
            await backend.close()


MOUNTS = {
    "/home/kubernetes/bin/nvidia": "/usr/local/nvidia",
    "/home/kubernetes/bin/nvidia/vulkan/icd.d": "/etc/vulkan/icd.d",
}


def answer(root: Path, backend: NvidiaBackend, devices: tuple[Device, ...], slot: str) -> Edits:
    """What a container gets: of the backend, and of the rule."""
    config = read_command_line([f"-gpu-config={root / 'gpu.json'}"], {}).translate().config
    (resource,) = make_offering(Inventory(devices), build(dict(config), "test").rules).resources
    grant = make_grant(resource, ALL_HEALTHY, [slot])
    return merge([backend.edits(grant), render(resource.terms.extra, grant)])


async def test_18_a_partition_has_three_nodes_four_of_the_driver_and_two_mounts(tmp_path: Path):
    cut = partitioned(gpus("A100", 1)[0], "3g.20gb", "3g.20gb")
    async with found(tmp_path, cut, config={"GPUPartitionSize": "3g.20gb"}) as (_, backend, devices):
        assert [device.id for device in devices] == ["nvidia0/gi1", "nvidia0/gi2"]
        edits = answer(tmp_path, backend, devices, "nvidia0/gi1")
        caps = {f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in (12, 13)}
        assert caps <= {node.path for node in edits.nodes}
        assert len(edits.nodes) == 7
        assert {node.permissions for node in edits.nodes} == {"mrw"}
        assert {mount.host_path: mount.container_path for mount in edits.mounts} == MOUNTS


async def test_18_a_whole_gpu_has_one_node_four_of_the_driver_and_two_mounts(tmp_path: Path):
    async with found(tmp_path, *gpus("A100", 1)) as (_, backend, devices):
        edits = answer(tmp_path, backend, devices, "nvidia0")
        assert len(edits.nodes) == 5
        assert {mount.host_path: mount.container_path for mount in edits.mounts} == MOUNTS
        assert all(mount.read_only for mount in edits.mounts)


@pytest.mark.parametrize(
    ("gpu", "kind", "xid", "withdrawn"),
    [
        (1, 8, 72, ["nvidia1"]),
        (1, 8, 88, []),
        (None, 8, 48, ["nvidia0", "nvidia1"]),
        (1, SINGLE_BIT_ECC, 72, []),
    ],
)
async def test_19_which_events_withdraw_which_gpus(
    gpu: int | None, kind: int, xid: int, withdrawn: list[str], tmp_path: Path
):
    words = ("-enable-health-monitoring",)
    async with found(tmp_path, *gpus("A100", 2), words=words, XID_CONFIG="72") as (machine, backend, _):
        heard = Heard()
        watch = asyncio.create_task(backend.watch(heard))
        if gpu is None:
            machine.stray(xid)
        else:
            machine.event(gpu, kind, xid)
        machine.xid(0, 31)  # what came before it has been heard
        assert await eventually(lambda: "xid-31" in heard.all)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    assert heard.faults == [(device, f"xid-{xid}") for device in withdrawn]


@pytest.mark.parametrize("xid", [48, 72])
async def test_19_an_event_of_a_gpu_that_is_not_offered_withdraws_none(xid: int, tmp_path: Path):
    """A UUID that is unknown. NVML tells of none that was not asked for: the event is made up."""
    words = ("-enable-health-monitoring",)
    async with found(tmp_path, *gpus("A100", 2), words=words, XID_CONFIG="72") as (_, backend, devices):
        heard, known = Heard(), devices[1].attributes["gpu"]
        backend._report(GpuEvent("GPU-0000-unknown", XID, xid), heard)
        assert heard.all == []
        backend._report(GpuEvent(known, XID, xid), heard)
        assert heard.faults == [("nvidia1", f"xid-{xid}")]


@pytest.mark.parametrize(("numa", "nodes"), [(0, (0,)), (-1, ()), (None, ())])
async def test_22_numa_nodes_are_those_of_sysfs(numa: int | None, nodes: tuple[int, ...], tmp_path: Path):
    card = replace(gpus("A100", 1)[0], bus_id="00000000:3B:00.0", numa_node=numa)
    async with found(tmp_path, card) as (_, _, (device,)):
        assert device.numa_nodes == nodes
        assert device.pci_address == "0000:3b:00.0"
