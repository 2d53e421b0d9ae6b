"""The drop-in for NVIDIA's mps-control-daemon: what it leaves for others to see, and how it takes orders."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.clock import FakeClock
from tests.nvml import Driver, gpus
from tests.nvml.library import compiled_or_skip
from tests.nvml.node import CONTROL
from tests.unit.backends.nvidia.mpstools import MpsWorld

from fairlead.backends.nvidia.mps.command import Tools
from fairlead.backends.nvidia.mps.daemonspec import ControlDaemonSpec
from fairlead.backends.nvidia.mps.supervisor import PACE_S
from fairlead.backends.nvidia.mps.tail import Tail
from fairlead.backends.nvidia.spec import Mps, Options
from fairlead.model.errors import BackendError, ConfigError, HostError
from fairlead.programs.mpsdaemon import RETRY_S, STOP, MpsDaemon, find_daemon_specs, mount_shm, shm_size


class Stage:
    """A daemon that runs, with its world."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "mps"
        self.world = MpsWorld(tmp_path / "tools")
        self.clock = FakeClock()
        self.facts: list[tuple[str, dict[str, object]]] = []
        self.told = asyncio.Event()
        self.log: list[str] = []
        self.specs: Sequence[ControlDaemonSpec] = [
            ControlDaemonSpec("nvidia.com/gpu", str(self.root), ("GPU-0",), (("0", 4096),), 25)
        ]
        self.trouble: Exception | None = None
        self.daemon = MpsDaemon(
            self._load, self.clock, self._record, self.log.append, root=str(self.root), tools=self.world.tools
        )

    async def _load(self) -> Sequence[ControlDaemonSpec]:
        if self.trouble is not None:
            raise self.trouble
        return self.specs

    def _record(self, kind: str, /, **keys: object) -> None:
        self.facts.append((kind, keys))
        self.told.set()

    async def wait_for(self, kind: str) -> dict[str, object]:
        """Until that is told; it is then forgotten with all before it."""
        async with asyncio.timeout(30):
            while True:
                for place, (known, keys) in enumerate(self.facts):
                    if known == kind:
                        del self.facts[: place + 1]
                        return keys
                self.told.clear()
                await self.told.wait()

    async def sleep(self, seconds: float) -> None:
        """When it has nothing left to do for that long."""
        async with asyncio.timeout(30):
            await self.clock.until_asleep(seconds)

    def ready(self) -> bool:
        return (self.root / ".ready").exists()

    def started(self) -> bool:
        return (self.root / "nvidia.com/gpu/.started").exists()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def end(stage: Stage, running: asyncio.Task[None]) -> None:
    stage.daemon.order(STOP)
    async with asyncio.timeout(30):
        await running


async def test_it_starts_marks_and_cleans_up_at_sigterm(stage: Stage) -> None:
    running = asyncio.create_task(stage.daemon.run())
    told = await stage.wait_for("mps-ready")
    assert told["limits"] == ["set_default_device_pinned_mem_limit 0 4096M", "set_default_active_thread_percentage 25"]
    assert stage.ready()
    assert stage.started()
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(30):
        await running
    assert not stage.ready()
    assert not stage.started()
    assert stage.world.alive() == 0
    assert stage.world.modes()[-1] == ("GPU-0", "DEFAULT")


async def test_the_daemons_log_is_passed_on(stage: Stage) -> None:
    running = asyncio.create_task(stage.daemon.run())
    await stage.wait_for("mps-ready")
    await stage.sleep(PACE_S)
    await stage.clock.advance(1)
    assert stage.log == ["control daemon started\n"]
    await end(stage, running)


async def test_a_start_that_fails_is_tried_again_and_leaves_no_mark(stage: Stage) -> None:
    stage.world.set("refuse--d")
    running = asyncio.create_task(stage.daemon.run())
    told = await stage.wait_for("mps-start-failed")
    assert "nvidia-cuda-mps-control -d failed" in str(told["problem"])
    assert not stage.ready()
    stage.world.unset("refuse--d")
    await stage.sleep(RETRY_S)
    await stage.clock.advance(RETRY_S)
    await stage.wait_for("mps-ready")
    assert stage.ready()
    await end(stage, running)


async def test_a_daemon_that_dies_takes_the_mark_with_it_until_it_is_back(stage: Stage) -> None:
    running = asyncio.create_task(stage.daemon.run())
    await stage.wait_for("mps-ready")
    stage.world.set("refuse--d")
    stage.world.kill()
    await stage.sleep(PACE_S)
    await stage.clock.advance(PACE_S)
    await stage.wait_for("mps-down")
    await stage.sleep(PACE_S)
    assert not stage.ready()
    stage.world.unset("refuse--d")
    await stage.clock.advance(PACE_S)
    await stage.wait_for("mps-back")
    assert stage.ready()
    assert stage.world.alive() == 1
    await end(stage, running)


async def test_sighup_reads_again_and_disturbs_only_what_differs(stage: Stage) -> None:
    running = asyncio.create_task(stage.daemon.run())
    await stage.wait_for("mps-ready")
    stage.world.forget()
    os.kill(os.getpid(), signal.SIGHUP)
    await stage.wait_for("mps-ready")
    assert stage.world.calls() == []
    stage.specs = [replace(stage.specs[0], threads_percent=50)]
    os.kill(os.getpid(), signal.SIGHUP)
    await stage.wait_for("mps-ready")
    assert stage.world.orders()[-1] == "set_default_active_thread_percentage 50"
    assert stage.world.starts() == 0
    stage.specs = []
    os.kill(os.getpid(), signal.SIGHUP)
    await stage.wait_for("mps-idle")
    assert stage.world.alive() == 0
    await end(stage, running)


async def test_a_bad_configuration_at_sighup_is_told_and_the_daemons_go_on(stage: Stage) -> None:
    running = asyncio.create_task(stage.daemon.run())
    await stage.wait_for("mps-ready")
    stage.trouble = ConfigError("config.yaml", ["unknown version: v2"])
    os.kill(os.getpid(), signal.SIGHUP)
    told = await stage.wait_for("problem")
    assert told["reason"] == "config.yaml: unknown version: v2"
    assert stage.ready()
    assert stage.world.alive() == 1
    await end(stage, running)


async def test_a_bad_configuration_at_the_start_ends_it(stage: Stage) -> None:
    stage.trouble = BackendError("no driver")
    with pytest.raises(BackendError, match="no driver"):
        await stage.daemon.run()


async def test_a_driver_that_hangs_does_not_hold_up_the_end(stage: Stage) -> None:
    asked = asyncio.Event()

    async def hang() -> list[ControlDaemonSpec]:
        asked.set()
        await asyncio.Event().wait()
        return []

    stage.daemon._load = hang
    running = asyncio.create_task(stage.daemon.run())
    async with asyncio.timeout(30):
        await asked.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(30):
        await running


async def test_a_root_that_cannot_be_written_is_named(stage: Stage) -> None:
    stage.specs = []
    stage.root.write_text("in the way")
    with pytest.raises(HostError, match=r"cannot make .*/mps/\.ready"):
        await stage.daemon.run()


async def test_plans_are_made_of_the_gpus_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_or_skip()
    there = gpus("L40S", 2)
    with Driver(gpus=there).installed(tmp_path / "node") as node:
        monkeypatch.setenv(CONTROL, str(node.control))
        options = Options(host_root=str(node.root), driver_root_mount=str(node.root))
        assert await find_daemon_specs(options, FakeClock()) == ()
        shared = Mps(root="/mps", replicas={"nvidia.com/gpu": 2})
        (spec,) = await find_daemon_specs(replace(options, mps=shared), FakeClock())
    assert spec.gpus == tuple(gpu.uuid for gpu in there)
    assert spec.limits[-1] == "set_default_active_thread_percentage 50"


def test_half_of_the_memory_is_shared(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    assert shm_size(meminfo) == "65536k"
    meminfo.write_text("MemFree: 5 kB\n")
    assert shm_size(meminfo) == "65536k"
    meminfo.write_text("MemTotal:       65793848 kB\nMemFree: 5 kB\n")
    assert shm_size(meminfo) == "32896924k"
    meminfo.write_text("MemTotal: 10\n")
    assert shm_size(meminfo) == "5"


def programs(directory: Path) -> Callable[[], list[str]]:
    """A `mount` and an `umount` that only say how they were called."""
    directory.mkdir()
    for name in ("mount", "umount"):
        path = directory / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{directory}/calls\n')
        path.chmod(0o755)
    return lambda: (directory / "calls").read_text().splitlines()


async def test_shm_is_mounted_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = programs(tmp_path / "bin")
    tools = Tools(path=str(tmp_path / "bin"))
    mounted = iter([True, False])
    monkeypatch.setattr(Path, "is_mount", lambda path: next(mounted))
    (tmp_path / "meminfo").write_text("MemTotal: 2000 kB\n")
    await mount_shm(str(tmp_path / "mps"), tools, tmp_path / "meminfo")
    place = tmp_path / "mps/shm"
    assert calls() == [
        f"umount {place}",
        f"mount -t tmpfs -o rw,nosuid,nodev,noexec,relatime,size=1000k shm {place}",
    ]


async def test_shm_without_mount_is_an_error_with_a_name(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"mount was not found\. Put it on the PATH"):
        await mount_shm(str(tmp_path / "mps"), Tools(path=str(tmp_path)))


def test_a_log_is_followed_through_cuts_and_new_files(tmp_path: Path) -> None:
    path = tmp_path / "control.log"
    tail = Tail(str(path))
    assert tail.read_new() == ""
    path.write_text("one\ntw")
    assert tail.read_new() == "one\n"
    with path.open("a") as file:
        file.write("o\n")
    assert tail.read_new() == "two\n"
    assert tail.read_new() == ""
    path.write_text("cut\n")
    assert tail.read_new() == "cut\n"
    path.rename(tmp_path / "old.log")
    path.write_text("new\n")
    assert tail.read_new() == "new\n"
