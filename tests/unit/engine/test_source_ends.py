"""What a backend's own code cannot do: end a source, or the daemon, in silence."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from tests.unit.engine.box import Box, Probed, Watched, running
from tests.unit.policy.wakeups import next_wakeup_s

from fairlead.kit.calls import Calls, contain_tasks
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import BackendError, EditsFailed, NotYet
from fairlead.model.health import Cause, CauseKind, Health, Sign
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.ports import Sink
from fairlead.policy import health

A = DeviceId("a")
RESET = Cause("xid-63", CauseKind.NEEDS_RESET, cured_by=("driver", "rows"))


def leave() -> None:
    sys.exit(3)


def interrupt() -> None:
    raise KeyboardInterrupt


def close_generator() -> None:
    raise GeneratorExit


def cancel_itself() -> None:
    raise asyncio.CancelledError


def cancel_its_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def hurt(how: Callable[[], None]) -> None:
    how()
    await asyncio.sleep(0)


WAYS = pytest.mark.parametrize("how", [leave, interrupt, close_generator, cancel_itself, cancel_its_task])


@WAYS
async def test_a_scan_that_exits_is_a_problem_and_is_tried_again(how: Callable[[], None]):
    backend = Box("a")
    async with running(backend) as rig:
        look = backend.discover

        async def discover() -> Findings:
            await hurt(how)
            return await look()

        backend.discover = discover  # type: ignore[method-assign]  # the point
        await rig.clock.advance(60)
        assert "discover" in rig.source.problem
        assert rig.kinds().count("scan-failed") == 1
        assert [device.id for device in rig.source.findings.devices] == ["a"]
        backend.discover = look  # type: ignore[method-assign]  # and back
        await rig.clock.advance(60)
        assert rig.source.problem == ""
        assert rig.kinds()[-1] == "scan-recovered"


@WAYS
async def test_a_probe_that_exits_is_no_data_and_probing_goes_on(how: Callable[[], None]):
    backend = Probed("a", "b")
    bad = True

    async def probe(device: Device) -> Any:
        if bad and device.id == "a":
            await hurt(how)
        return Cause("smoke", CauseKind.NEEDS_RESET) if device.id == "b" else None

    backend.probe = probe  # type: ignore[method-assign]  # the point
    async with running(backend) as rig:
        await rig.clock.advance(50)
        assert (rig.health("a"), rig.health("b")) == (Health.HEALTHY, Health.UNHEALTHY)
        assert rig.kinds().count("probe-failed") == 1
        bad = False
        await rig.clock.advance(5)
        assert rig.source._unprobed == {}


@WAYS
async def test_a_watch_that_exits_is_a_problem_until_it_has_run_for_a_while(how: Callable[[], None]):
    backend = Watched("a")
    bad = True
    listen = backend.watch

    async def watch(sink: Sink) -> None:
        if bad:
            await hurt(how)
        await listen(sink)

    backend.watch = watch  # type: ignore[method-assign]  # the point
    async with running(backend) as rig:
        await rig.clock.advance(0)
        assert "watch" in rig.source.problem
        assert "watch-failed" in rig.kinds()
        await rig.clock.advance(30)
        assert rig.kinds().count("watch-failed") == 3  # after 0, 5 and 15 s: each pause is longer
        bad = False
        await rig.clock.advance(40)
        assert rig.source.problem == ""
        assert backend.sink is not None
        backend.sink.fault(A, Cause("xid-48", CauseKind.NEEDS_RESET))
        assert rig.health("a") is Health.UNHEALTHY


@WAYS
async def test_what_a_container_gets_is_refused_and_nothing_ends(how: Callable[[], None]):
    class Rude(Box):
        async def prepare(self, grant: Grant) -> None:
            await hurt(how)

        async def wait_for(self) -> str:
            await hurt(how)
            return ""

        def edits(self, grant: Grant) -> Edits:
            if how is not cancel_its_task:
                how()
            raise BackendError("edits")

    grant = Grant(ResourceName("example.com/x"), (SlotId("a"),), (Device(A),))
    async with running(Rude("a")) as rig:
        assert rig.source.prepare is not None
        assert rig.source.wait_for is not None
        with pytest.raises(BackendError, match="prepare"):
            await rig.source.prepare(grant)
        with pytest.raises(BackendError, match="wait_for"):
            await rig.source.wait_for()
        with pytest.raises(EditsFailed, match="edits"):
            rig.source.edits(grant)


@WAYS
async def test_a_close_that_exits_ends_the_source_all_the_same(how: Callable[[], None]):
    backend = Box("a")
    async with running(backend) as rig:

        async def close() -> None:
            backend.closed = True
            await hurt(how)

        backend.close = close  # type: ignore[method-assign]  # the point
    assert rig.kinds()[-1] == "close-failed"


async def test_a_loop_that_is_cancelled_by_another_is_started_again():
    async with running(Probed("a")) as rig:
        pulse = rig.source.pulse

        async def cancelled() -> None:
            raise asyncio.CancelledError

        rig.source.pulse = cancelled  # type: ignore[method-assign]  # a defect of ours
        await rig.clock.advance(5)
        assert "probe: the probe was cancelled" in rig.source.problem
        assert "source-failed" in rig.kinds()
        rig.source.pulse = pulse  # type: ignore[method-assign]  # and back
        await rig.clock.advance(20)
        assert rig.source.problem == ""


async def test_the_daemons_own_cancellation_ends_a_source():
    backend = Watched("a")
    async with running(backend) as rig:
        await rig.clock.advance(0)
        task = next(task for task in asyncio.all_tasks() if task.get_name() == "watch box")
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert "watch-failed" not in rig.kinds()


@pytest.mark.parametrize("how", [leave, interrupt])
async def test_a_task_that_a_call_starts_cannot_end_the_loop(how: Callable[[], None]):
    loop = asyncio.get_running_loop()
    contain_tasks(loop)

    async def discover() -> None:
        await asyncio.gather(hurt(how), asyncio.sleep(0))

    async def leave_behind() -> None:
        asyncio.create_task(asyncio.sleep(60)).cancel()

    try:
        with pytest.raises(BackendError, match="a task of discover raised"):
            await Calls().call("discover", discover)
        await Calls().call("discover", leave_behind)
        own = loop.create_task(asyncio.sleep(0, "as ever"))
        assert await own == "as ever"
    finally:
        loop.set_task_factory(None)


async def test_a_call_that_swallows_its_cancellation_is_left_behind_and_not_doubled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fairlead.kit.calls.GRACE_S", 0.01)
    release = asyncio.Event()

    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    calls = Calls()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await calls.call("discover", stubborn)
    with pytest.raises(BackendError, match="has not ended"):
        await calls.call("discover", stubborn)
    release.set()
    await asyncio.sleep(0.01)
    assert await calls.call("discover", stubborn) == "late"


async def test_a_backend_that_only_asks_all_at_once_has_its_devices_recover():
    class AllOnly(Box):
        faults: Mapping[DeviceId, Cause] = {}

        async def probe_all(self, devices: Sequence[Device]) -> dict[DeviceId, Cause | None]:
            return {device.id: self.faults.get(device.id) for device in devices}

    backend = AllOnly("a")
    async with running(backend) as rig:
        backend.faults = {A: Cause("xid-48", CauseKind.NEEDS_RESET)}
        await rig.clock.advance(5)
        assert rig.health("a") is Health.UNHEALTHY
        backend.faults = {}
        await rig.clock.advance(300)
        assert rig.health("a") is Health.HEALTHY


async def test_what_may_come_at_any_moment_is_looked_for_after_seconds():
    backend = Box("a")
    async with running(backend) as rig:
        backend.devices = NotYet("no driver")
        await rig.clock.advance(60)
        scans = backend.scans
        await rig.clock.advance(30)
        assert backend.scans == scans + 6
        assert rig.kinds().count("scan-failed") == 1
        backend.devices = BackendError("a mistake that stays")
        await rig.clock.advance(5)
        scans = backend.scans
        await rig.clock.advance(59)
        assert backend.scans == scans


class Resettable(Probed):
    """Shows how it is: which driver it runs on, and whether rows wait for a reset."""

    driver = "1"
    pending = False
    reads = 0
    broken = False

    async def signs(self, devices: Sequence[Device]) -> Any:
        self.reads += 1
        if self.broken:
            raise OSError("no session")
        return {device.id: {"driver": Sign(self.driver), "rows": Sign(asks=self.pending)} for device in devices}


async def fallen(rig: Any) -> None:
    rig.source.fault(A, RESET)
    assert rig.facts[-1][1]["until"] == "a reset is seen"
    await rig.clock.advance(7200)
    assert rig.health("a") is Health.UNHEALTHY


async def test_a_fault_that_only_a_reset_cures_outlasts_clean_probes_and_time():
    async with running(Resettable("a")) as rig:
        await rig.clock.advance(60)
        assert rig.backend.reads == 0  # nothing is looked for while all is well
        await fallen(rig)
        rig.backend.driver = "2"
        await rig.clock.advance(120)
        assert rig.health("a") is Health.HEALTHY
        assert "cause-cured" in rig.kinds()


async def test_a_sign_that_asks_for_a_reset_outweighs_one_that_shows_it():
    async with running(Resettable("a")) as rig:
        await fallen(rig)
        rig.backend.driver, rig.backend.pending = "2", True
        await rig.clock.advance(600)
        assert rig.health("a") is Health.UNHEALTHY
        rig.backend.pending = False  # asked for, and asked for no more
        await rig.clock.advance(120)
        assert rig.health("a") is Health.HEALTHY


async def test_a_reset_before_a_fault_does_not_cure_it():
    async with running(Resettable("a")) as rig:
        await fallen(rig)
        rig.backend.driver = "2"
        rig.source.fault(A, RESET)
        await rig.clock.advance(7200)
        assert rig.health("a") is Health.UNHEALTHY


async def test_signs_that_cannot_be_read_cure_nobody_and_a_person_can_still_clear():
    async with running(Resettable("a")) as rig:
        await fallen(rig)
        rig.backend.broken = True
        await rig.clock.advance(600)
        assert rig.health("a") is Health.UNHEALTHY
        assert rig.source.problem == ""
        assert rig.kinds().count("probe-failed") == 1
        rig.backend.broken = False
        await rig.clock.advance(10)
        rig.backend.broken = True
        await rig.clock.advance(600)
        assert rig.kinds().count("probe-failed") == 2  # it was read again in between
        rig.source.clear(A)
        await rig.clock.advance(60)
        assert rig.health("a") is Health.HEALTHY


def test_a_cause_with_signs_is_known_to_wait_for_an_event():
    track = health.fault(health.Track(), RESET, 0.0)
    for _ in range(5):
        track = health.clean(track, 100.0)
    assert track.condition.health is Health.UNHEALTHY
    assert next_wakeup_s(track) is None
