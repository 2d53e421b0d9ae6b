"""The whole backend on the simulated driver, as far as injection goes: CDI specs and MPS around a scan."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.clock import FakeClock
from tests.nvml import Driver, Node, gpus
from tests.nvml.library import compiled_or_skip
from tests.nvml.node import CONTROL
from tests.unit.backends.nvidia.mpstools import MpsWorld
from tests.unit.backends.sink import Notes

from fairlead.backends.nvidia.backend import NvidiaBackend
from fairlead.backends.nvidia.mps.daemon import ControlDaemon
from fairlead.backends.nvidia.mps.daemonspec import make_daemon_specs
from fairlead.backends.nvidia.mps.supervisor import CODE, PACE_S
from fairlead.backends.nvidia.spec import Cdi, DeviceListStrategy, Health, Mps, Options
from fairlead.model.edits import Grant
from fairlead.model.errors import BackendError
from fairlead.model.names import ResourceName, SlotId

GPU = "nvidia.com/gpu"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    compiled_or_skip()
    with Driver(gpus=gpus("L40S", 2)).installed(tmp_path / "node") as installed:
        monkeypatch.setenv(CONTROL, str(installed.control))
        yield installed


@pytest.fixture
def options(node: Node, tmp_path: Path) -> Options:
    return Options(
        host_root=str(node.root),
        driver_root_mount=str(node.root),
        ways=(DeviceListStrategy.CDI_CRI,),
        cdi=Cdi(directory=str(tmp_path / "cdi")),
        health=Health(ignored_xids="all"),
    )


def spec_of(options: Options) -> Path:
    return Path(options.cdi.directory) / "k8s.device-plugin.nvidia.com-gpu.json"


def block(options: Options) -> None:
    """A file where the directory was: that stops root too."""
    spec_of(options).unlink()
    Path(options.cdi.directory).rmdir()
    Path(options.cdi.directory).touch()


async def test_specs_are_there_before_the_devices_are_known_and_again_when_wiped(options: Options) -> None:
    backend, notes = NvidiaBackend(options, FakeClock()), Notes()
    found = (await backend.discover()).devices
    names = [device["name"] for device in json.loads(spec_of(options).read_text())["devices"]]
    assert names == sorted(device.id for device in found)
    grant = Grant(ResourceName(GPU), (SlotId(found[0].id),), found[:1])
    assert backend.edits(grant).cdi == (f"k8s.device-plugin.nvidia.com/gpu={found[0].id}",)
    await backend.close()
    assert spec_of(options).exists()  # a container that is started again needs it

    clock = FakeClock()
    backend = NvidiaBackend(options, clock)
    await backend.discover()
    watch = asyncio.create_task(backend.watch(notes))
    await clock.advance(0)  # until it has nothing left to do but to wait
    spec_of(options).unlink()
    async with asyncio.timeout(30):
        await clock.until_asleep(0.1)
    await clock.advance(1)
    await notes.wait_for("rescan")
    await backend.discover()
    assert spec_of(options).exists()
    watch.cancel()
    await asyncio.wait([watch])
    await backend.close()


async def test_an_unwritable_directory_fails_the_scan_and_not_the_answers(options: Options, tmp_path: Path) -> None:
    backend = NvidiaBackend(options, FakeClock())
    found = (await backend.discover()).devices
    block(options)
    with pytest.raises(BackendError, match="cannot write the CDI spec"):
        await backend.discover()
    assert backend.edits(Grant(ResourceName(GPU), (SlotId(found[0].id),), found[:1])).cdi
    await backend.close()


async def test_devices_shared_by_mps_come_and_go_with_its_control_daemon(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = MpsWorld(tmp_path / "tools")
    monkeypatch.setenv("PATH", f"{world.tools.path}:/usr/bin:/bin")
    mps = Mps(root=str(tmp_path / "mps"), replicas={GPU: 4})
    clock, notes = FakeClock(), Notes()
    backend = NvidiaBackend(replace(options, ways=(DeviceListStrategy.ENVVAR,), mps=mps), clock)
    early = await backend.discover()  # no failed scan: a daemon that must have GPUs at its start does not end for it
    assert early.devices == ()
    assert early.problems[0].startswith("the MPS control daemon for nvidia.com/gpu is not well")
    (plan,) = make_daemon_specs(
        mps, (await NvidiaBackend(replace(options, ways=(DeviceListStrategy.ENVVAR,)), clock).discover()).devices
    )
    await ControlDaemon(plan, world.tools).start()
    found = (await backend.discover()).devices
    assert len(found) == 2
    watch = asyncio.create_task(backend.watch(notes))
    world.kill()
    async with asyncio.timeout(30):
        await clock.until_asleep(PACE_S)
    await clock.advance(PACE_S)
    await notes.wait_for("fault", found[1].id, CODE)
    watch.cancel()
    await asyncio.wait([watch])
    await backend.close()
    assert "quit" not in world.orders()  # it is not ours to stop


async def test_control_daemons_of_our_own_are_started_and_stopped(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = MpsWorld(tmp_path / "tools")
    monkeypatch.setenv("PATH", f"{world.tools.path}:/usr/bin:/bin")
    mps = Mps(root=str(tmp_path / "mps"), replicas={GPU: 4}, managed=True)
    backend = NvidiaBackend(replace(options, ways=(DeviceListStrategy.ENVVAR,), mps=mps), FakeClock())
    found = (await backend.discover()).devices
    assert world.modes() == [(device.id, "EXCLUSIVE_PROCESS") for device in found]
    assert world.orders()[-1] == "set_default_active_thread_percentage 25"
    await backend.close()
    assert world.alive() == 0


async def test_too_many_replicas_are_told_and_not_begun(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = MpsWorld(tmp_path / "tools")
    monkeypatch.setenv("PATH", f"{world.tools.path}:/usr/bin:/bin")
    mps = Mps(root=str(tmp_path / "mps"), replicas={GPU: 49}, managed=True)
    backend = NvidiaBackend(replace(options, ways=(DeviceListStrategy.ENVVAR,), mps=mps), FakeClock())
    with pytest.raises(BackendError, match="maximum allowed replicas exceeded: 49 > 48"):
        await backend.discover()
    assert world.calls() == []
    await backend.close()
