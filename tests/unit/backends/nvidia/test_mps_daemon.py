"""Control daemons on stand-ins for NVIDIA's programs: started, limited, watched, started again, stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.clock import FakeClock
from tests.unit.backends.nvidia.mpstools import MpsWorld

from fairlead.backends.nvidia.mps.command import Tools
from fairlead.backends.nvidia.mps.daemon import ControlDaemon
from fairlead.backends.nvidia.mps.daemonspec import ControlDaemonSpec
from fairlead.backends.nvidia.mps.supervisor import CODE, FIRST_PAUSE_S, PACE_S, DaemonSupervisor
from fairlead.model.errors import BackendError
from fairlead.model.health import Cause, CauseKind
from fairlead.model.names import DeviceId
from fairlead.model.ports import Clock


class Heard:
    """Implements model.ports.Sink."""

    def __init__(self) -> None:
        self.faults: list[tuple[str, Cause]] = []
        self.cleared: list[tuple[str, str | None]] = []
        self.rescans = 0

    def fault(self, device: DeviceId, cause: Cause) -> None:
        self.faults.append((device, cause))

    def clear(self, device: DeviceId, code: str | None = None) -> None:
        self.cleared.append((device, code))

    def rescan(self) -> None:
        self.rescans += 1


LIMITS = [
    "set_default_device_pinned_mem_limit 0 4096M",
    "set_default_device_pinned_mem_limit 1 4096M",
    "set_default_active_thread_percentage 25",
]


@pytest.fixture
def world(tmp_path: Path) -> MpsWorld:
    return MpsWorld(tmp_path / "tools")


@pytest.fixture
def spec(tmp_path: Path) -> ControlDaemonSpec:
    return ControlDaemonSpec(
        "nvidia.com/gpu", str(tmp_path / "mps"), ("GPU-0", "GPU-1"), (("0", 4096), ("1", 4096)), 25
    )


@pytest.fixture
def daemon(world: MpsWorld, spec: ControlDaemonSpec, tmp_path: Path) -> ControlDaemon:
    return ControlDaemon(spec, world.tools, selinux=tmp_path / "no-selinux")


def marks(spec: ControlDaemonSpec) -> set[str]:
    """What is in the daemon's directory."""
    directory = Path(spec.directory)
    return {path.name for path in directory.iterdir()} if directory.exists() else set()


async def test_it_starts_with_gpus_of_its_own_and_then_has_its_limits(
    daemon: ControlDaemon, world: MpsWorld, spec: ControlDaemonSpec
) -> None:
    await daemon.start()
    assert world.modes() == [("GPU-0", "EXCLUSIVE_PROCESS"), ("GPU-1", "EXCLUSIVE_PROCESS")]
    assert world.orders() == LIMITS
    assert [call.what for call in world.calls()][:4] == ["mode", "mode", "order", "start"]
    assert marks(spec) == {".started", "log", "pipe"}
    await daemon.check()


async def test_it_stops_and_leaves_nothing_behind(
    daemon: ControlDaemon, world: MpsWorld, spec: ControlDaemonSpec
) -> None:
    await daemon.start()
    world.forget()
    assert await daemon.stop() == ()
    assert world.orders() == ["quit"]
    assert world.modes() == [("GPU-0", "DEFAULT"), ("GPU-1", "DEFAULT")]
    assert world.alive() == 0
    assert marks(spec) == {"pipe"}


async def test_one_that_runs_already_is_taken_over_and_limited_again(
    daemon: ControlDaemon, world: MpsWorld, spec: ControlDaemonSpec
) -> None:
    await daemon.start()
    world.forget()
    await ControlDaemon(replace(spec, threads_percent=50), world.tools).start()
    assert world.starts() == 0
    assert world.orders() == [*LIMITS[:2], "set_default_active_thread_percentage 50"]


async def test_to_stop_what_never_started_is_no_disaster(daemon: ControlDaemon, world: MpsWorld) -> None:
    world.set("refuse-GPU-0")
    problems = await daemon.stop()
    assert len(problems) == 2
    assert "Cannot find MPS control daemon process" in problems[0]
    assert ("GPU-1", "DEFAULT") in world.modes()


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("refuse-GPU-1", "nvidia-smi -i GPU-1 -c EXCLUSIVE_PROCESS failed with 1: refused: GPU-1"),
        ("refuse--d", "nvidia-cuda-mps-control -d failed with 1"),
        ("refuse-set_default_device_pinned_mem_limit", r"\(set_default_device_pinned_mem_limit 0 4096M\) failed"),
    ],
)
async def test_a_step_that_fails_is_named_and_can_be_tried_again(
    daemon: ControlDaemon, world: MpsWorld, spec: ControlDaemonSpec, trouble: str, words: str
) -> None:
    world.set(trouble)
    with pytest.raises(BackendError, match=words):
        await daemon.start()
    assert ".started" not in marks(spec)
    world.unset(trouble)
    await daemon.start()
    assert ".started" in marks(spec)


async def test_a_plan_with_problems_is_not_begun(world: MpsWorld, spec: ControlDaemonSpec) -> None:
    with pytest.raises(BackendError, match="too many replicas"):
        await ControlDaemon(replace(spec, problems=("too many replicas",)), world.tools).start()
    assert world.calls() == []


async def test_a_program_that_hangs_is_ended(daemon: ControlDaemon, world: MpsWorld, spec: ControlDaemonSpec) -> None:
    await daemon.start()
    world.set("hang-get_default_active_thread_percentage")
    impatient = ControlDaemon(spec, replace(world.tools, deadline_s=0.01))
    with pytest.raises(BackendError, match=r"has not answered for 0\.01 s, and was ended"):
        await impatient.check()


async def test_programs_that_are_not_there_are_named(spec: ControlDaemonSpec, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"nvidia-smi was not found\. It comes with the driver"):
        await ControlDaemon(spec, Tools(path=str(tmp_path))).start()


async def test_a_root_that_cannot_be_written_is_named(world: MpsWorld, spec: ControlDaemonSpec, tmp_path: Path) -> None:
    (tmp_path / "mps").write_text("in the way")
    with pytest.raises(BackendError, match=rf"Make {spec.root} writable"):
        await ControlDaemon(spec, world.tools).start()


async def test_one_that_never_answers_after_its_start_is_an_error(world: MpsWorld, spec: ControlDaemonSpec) -> None:
    world.set("refuse-get_default_active_thread_percentage")
    clock = FakeClock()
    start = asyncio.create_task(ControlDaemon(spec, world.tools, clock).start())
    while not start.done():
        await clock.advance(1)
        await asyncio.sleep(0.01)
    with pytest.raises(BackendError, match="refused: get_default_active_thread_percentage"):
        await start


def supervisor(clock: Clock, world: MpsWorld, *, managed: bool = False, keep: bool = False) -> DaemonSupervisor:
    return DaemonSupervisor(clock, tools=world.tools, managed=managed, keep=keep)


async def test_nothing_is_offered_before_the_daemon_of_another_container_is_well(
    world: MpsWorld, spec: ControlDaemonSpec, daemon: ControlDaemon
) -> None:
    guard, sink = supervisor(FakeClock(), world), Heard()
    with pytest.raises(BackendError, match=r"the MPS control daemon for nvidia\.com/gpu is not well"):
        await guard.ready([spec])
    assert world.modes() == []  # it is not ours to start
    await guard.check_all(sink)
    assert sink.rescans == 0
    await daemon.start()
    await guard.check_all(sink)
    assert sink.rescans == 1
    await guard.ready([spec])


async def test_gpus_of_a_daemon_that_falls_are_at_fault_until_it_is_back(
    world: MpsWorld, spec: ControlDaemonSpec, daemon: ControlDaemon
) -> None:
    guard, sink = supervisor(FakeClock(), world), Heard()
    await daemon.start()
    await guard.ready([spec])
    await guard.check_all(sink)
    assert not sink.faults
    world.kill()
    await guard.check_all(sink)
    assert [(id_, cause.code, cause.kind) for id_, cause in sink.faults] == [
        ("GPU-0", CODE, CauseKind.NEEDS_RESET),
        ("GPU-1", CODE, CauseKind.NEEDS_RESET),
    ]
    assert "Cannot find MPS control daemon process" in sink.faults[0][1].message
    await guard.ready([spec])  # its devices are known: no reason to doubt the scan
    await guard.check_all(sink)
    assert len(sink.faults) == 4  # told again, so that nobody forgives it meanwhile
    await daemon.start()
    await guard.check_all(sink)
    assert sink.cleared == [("GPU-0", CODE), ("GPU-1", CODE)]


async def test_a_daemon_of_ours_is_started_again_and_less_often_the_longer_it_fails(
    world: MpsWorld, spec: ControlDaemonSpec
) -> None:
    clock, sink = FakeClock(), Heard()
    guard = supervisor(clock, world, managed=True)
    await guard.ready([spec])
    world.kill()
    await guard.check_all(sink)
    assert world.alive() == 1
    assert len(sink.faults) == len(sink.cleared) == 2
    world.kill()
    world.set("refuse--d")
    world.forget()
    tries = []
    for _ in range(20):
        before = world.starts()
        await guard.check_all(sink)
        tries.append(world.starts() - before)
        await clock.advance(FIRST_PAUSE_S)
    assert [second for second, count in enumerate(tries) if count] == [0, 1, 3, 7, 15]
    world.unset("refuse--d")
    await clock.advance(60)
    sink.cleared.clear()
    await guard.check_all(sink)
    assert sink.cleared == [("GPU-0", CODE), ("GPU-1", CODE)]
    assert await guard.close() == ()
    assert world.alive() == 0


async def test_the_watch_asks_at_its_pace(world: MpsWorld, spec: ControlDaemonSpec, daemon: ControlDaemon) -> None:
    clock, sink = FakeClock(), Heard()
    await daemon.start()
    guard = supervisor(clock, world)
    await guard.ready([spec])
    world.kill()
    watch = asyncio.create_task(guard.watch(sink))
    await clock.until_asleep(PACE_S)
    await clock.advance(PACE_S)
    await clock.until_asleep(PACE_S)  # the round is over
    assert len(sink.faults) == 2
    watch.cancel()
    await asyncio.wait([watch])


async def test_a_changed_plan_reaches_the_daemon_without_a_restart(world: MpsWorld, spec: ControlDaemonSpec) -> None:
    guard = supervisor(FakeClock(), world, managed=True)
    await guard.ready([spec])
    world.forget()
    await guard.ready([spec])
    assert world.calls() == []
    await guard.ready([replace(spec, gpus=("GPU-0",), memory=(("0", 8192),), threads_percent=50)])
    assert world.starts() == 0
    assert world.modes() == [("GPU-0", "EXCLUSIVE_PROCESS"), ("GPU-1", "DEFAULT")]
    assert world.orders() == [
        "set_default_device_pinned_mem_limit 0 8192M",
        "set_default_active_thread_percentage 50",
    ]
    await guard.ready([])
    assert world.alive() == 0


async def test_daemons_that_are_kept_outlive_us(world: MpsWorld, spec: ControlDaemonSpec) -> None:
    guard = supervisor(FakeClock(), world, managed=True, keep=True)
    await guard.ready([spec])
    assert await guard.close() == ()
    assert world.alive() == 1
