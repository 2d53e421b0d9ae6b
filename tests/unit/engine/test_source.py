"""Sources: a backend may fail, hang, or lie; what it last said stands."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.engine.box import Box, Probed, Watched, running

from fairlead.engine.edits import make_allocator
from fairlead.engine.listing import Listing
from fairlead.engine.source import HASTY_SCANS, UNKNOWN_TOLD
from fairlead.engine.sources import inventory_of
from fairlead.model.device import Device
from fairlead.model.errors import BackendError
from fairlead.model.health import Cause, CauseKind, Health
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.policy.offering.rules import Rule, Selector

GPU = ResourceName("example.com/gpu")


async def test_devices_are_found_and_marked_with_their_backend():
    async with running(Box("a", "b")) as rig:
        assert [(device.id, device.backend) for device in rig.source.findings.devices] == [("a", "box"), ("b", "box")]
        assert rig.kinds() == ["device-found", "device-found"]


@pytest.mark.parametrize("failure", [BackendError("no driver"), RuntimeError("bug"), "hang", [1]])
async def test_a_failed_scan_keeps_the_last_inventory_and_is_told_once(failure: Any):
    async with running(Box("a"), deadline_s=0.05 if failure == "hang" else 20.0) as rig:
        rig.backend.devices = failure
        await rig.source.scan()
        await rig.source.scan()
        assert [device.id for device in rig.source.findings.devices] == ["a"]
        assert rig.source.problem
        assert rig.kinds().count("scan-failed") == 1
        rig.backend.devices = [Device(DeviceId("a"))]
        await rig.source.scan()
        assert not rig.source.problem
        assert "scan-recovered" in rig.kinds()


@pytest.mark.parametrize(
    "junk",
    [
        5,
        Device(5),  # type: ignore[arg-type]  # the point
        Device([]),  # type: ignore[arg-type]  # the point
        Device("a", index=1),  # type: ignore[arg-type]  # the point
        Device("a", numa_nodes=(2**70,)),
        Device("a", numa_nodes=("0",)),  # type: ignore[arg-type]  # the point
        Device("a", numa_nodes=1),  # type: ignore[arg-type]  # the point
        Device("a", memory_bytes="1"),  # type: ignore[arg-type]  # the point
        Device("a", nodes=("/dev/a",)),  # type: ignore[arg-type]  # the point
        Device("a", slots="ab"),  # type: ignore[arg-type]  # the point
        Device("a", slots=(1,)),  # type: ignore[arg-type]  # the point
    ],
)
async def test_junk_is_a_failed_scan_with_a_reason(junk: Any):
    async with running(Box("a")) as rig:
        rig.backend.devices = [junk]
        await rig.source.scan()
        assert [device.id for device in rig.source.findings.devices] == ["a"]
        assert rig.source.problem


async def test_junk_from_a_probe_is_no_data():
    backend = Probed("a")
    async with running(backend) as rig:
        backend.faults = {"a": True}
        await rig.clock.advance(50)
        assert rig.health("a") is Health.HEALTHY
        assert rig.kinds().count("probe-failed") == 1  # told once


async def test_a_loop_that_stumbles_is_started_again():
    backend = Probed("a")
    async with running(backend) as rig:
        judge, rig.source._judge = rig.source._judge, None  # type: ignore[assignment, method-assign]  # a defect of ours
        await rig.clock.advance(5)
        assert "TypeError" in rig.source.problem
        rig.source._judge = judge  # type: ignore[method-assign]  # and back
        backend.faults = {"a": Cause("xid-48", CauseKind.NEEDS_RESET)}
        await rig.clock.advance(20)
        assert rig.health("a") is Health.UNHEALTHY


async def test_probes_that_share_a_thread_do_not_wait_on_each_others_time():
    backend = Probed("a", "b")
    backend.one_at_a_time = True  # type: ignore[attr-defined]  # as a backend may
    order: list[str] = []

    async def probe(device: Device) -> None:
        order.append(f"{device.id} begins")
        await asyncio.sleep(0)
        order.append(f"{device.id} ends")

    backend.probe = probe  # type: ignore[method-assign]  # the point
    async with running(backend) as rig:
        await rig.clock.advance(0)
        assert order[:4] == ["a begins", "a ends", "b begins", "b ends"]


async def test_devices_that_are_asked_in_one_go_each_have_their_answer():
    backend = Probed("a", "b", "c", "d")
    rounds: list[list[str]] = []

    async def probe_all(devices: Sequence[Device]) -> dict[str, Cause | Exception | None]:
        rounds.append([device.id for device in devices])
        return {"a": None, "b": Cause("xid-48", CauseKind.NEEDS_RESET), "c": BackendError("not asked: it hangs")}

    backend.probe_all = probe_all  # type: ignore[attr-defined]  # as a backend may
    async with running(backend) as rig:
        await rig.clock.advance(5)
        assert rounds == [["a", "b", "c", "d"]] * 2
        assert [rig.health(device) for device in "abcd"] == [
            Health.HEALTHY,
            Health.UNHEALTHY,
            Health.HEALTHY,
            Health.HEALTHY,
        ]
        assert rig.kinds().count("probe-failed") == 2  # c and d, each told once


@pytest.mark.parametrize("junk", [None, {"a": True}, BackendError("the driver is gone")])
async def test_junk_for_all_is_no_data_for_any(junk: Any):
    backend = Probed("a", "b")

    async def probe_all(devices: Sequence[Device]) -> Any:
        if isinstance(junk, Exception):
            raise junk
        return junk

    backend.probe_all = probe_all  # type: ignore[attr-defined]  # as a backend may
    async with running(backend) as rig:
        await rig.clock.advance(50)
        assert rig.source.problem == ""
        assert [rig.health(device) for device in "ab"] == [Health.HEALTHY] * 2
        assert rig.kinds().count("probe-failed") == 2


async def test_devices_that_do_not_answer_in_one_go_are_late_together():
    backend = Probed("a", "b")
    hangs = False

    async def probe_all(devices: Sequence[Device]) -> Any:
        if hangs:
            await asyncio.Event().wait()
        return dict.fromkeys("ab")

    backend.probe_all = probe_all  # type: ignore[attr-defined]  # as a backend may
    async with running(backend, deadline_s=0.05) as rig:
        await rig.clock.advance(0)
        hangs = True
        await rig.source.pulse()
        assert [rig.health(device) for device in "ab"] == [Health.SUSPECT] * 2


async def test_it_scans_again_by_time_and_when_asked():
    async with running(Box("a")) as rig:
        await rig.clock.advance(60)
        assert rig.backend.scans == 2
        rig.source.rescan()
        await rig.clock.advance(0)
        assert rig.backend.scans == 3
        rig.backend.devices = []
        rig.source.rescan()
        await rig.clock.advance(0)
        assert rig.kinds()[-1] == "device-gone"


async def test_a_backend_that_asks_for_scans_without_end_is_scanned_at_a_pace():
    async with running(Box("a")) as rig:
        for _ in range(100):
            rig.source.rescan()
            await rig.clock.advance(0)
        assert rig.backend.scans == 1 + HASTY_SCANS
        for _ in range(100):
            rig.source.rescan()
            await rig.clock.advance(0.1)
        assert rig.backend.scans <= 1 + HASTY_SCANS + 11
        await rig.clock.advance(30)  # it has calmed down
        before = rig.backend.scans
        rig.source.rescan()
        await rig.clock.advance(0)
        assert rig.backend.scans == before + 1


async def test_a_scan_that_finds_the_same_changes_nothing():
    async with running(Box("a")) as rig:
        changes = rig.changes
        await rig.clock.advance(300)
        assert rig.changes == changes
        rig.backend.devices = [Device(DeviceId("a"), model="other")]
        await rig.clock.advance(60)
        assert rig.changes == changes + 1


async def test_reports_on_unknown_devices_are_told_once_each_and_not_without_end():
    async with running(Watched("a")) as rig:
        for number in [*range(200), *range(200)]:
            rig.source.fault(DeviceId(f"none-{number}"), Cause("x", CauseKind.PERMANENT))
        assert rig.kinds().count("report-for-unknown-device") == UNKNOWN_TOLD


async def test_a_wall_clock_that_is_set_back_does_not_lengthen_a_hold():
    backend = Probed("a")
    async with running(backend) as rig:
        backend.faults = {"a": Cause("xid-48", CauseKind.NEEDS_RESET)}
        await rig.clock.advance(5)
        assert rig.health("a") is Health.UNHEALTHY
        rig.clock._start_s -= 86_400
        backend.faults = {}
        await rig.clock.advance(300)
        assert rig.health("a") is Health.HEALTHY


async def test_a_probe_that_finds_a_fault_withdraws_the_device():
    backend = Probed("a", "b")
    async with running(backend) as rig:
        backend.faults = {"a": Cause("xid-48", CauseKind.NEEDS_RESET)}
        await rig.clock.advance(5)
        assert (rig.health("a"), rig.health("b")) == (Health.UNHEALTHY, Health.HEALTHY)
        backend.faults = {}
        await rig.clock.advance(300)
        assert rig.health("a") is Health.HEALTHY


async def test_a_hanging_probe_is_a_transient_fault_of_that_device_only():
    backend = Probed("a", "b")
    async with running(backend, deadline_s=0.05) as rig:
        await rig.clock.advance(0)  # the source's own round is over
        backend.faults = {"a": "hang"}
        await rig.source.pulse()
        assert rig.health("a") is Health.SUSPECT
        assert rig.source.conditions[DeviceId("a")].cause.code == "probe-timeout"  # type: ignore[union-attr]  # suspect
        assert rig.health("b") is Health.HEALTHY


async def test_a_probe_that_raises_is_no_data_and_no_data_is_not_unhealthy():
    backend = Probed("a")
    async with running(backend) as rig:
        backend.faults = {"a": OSError("busy")}
        await rig.clock.advance(50)
        assert rig.health("a") is Health.HEALTHY
        assert "probe-failed" in rig.kinds()


async def test_a_watch_reports_faults_clears_and_rescans():
    backend = Watched("a")
    async with running(backend) as rig:
        await rig.clock.advance(0)
        assert backend.sink is not None
        backend.sink.fault(DeviceId("a"), Cause("xid-79", CauseKind.PERMANENT))
        assert rig.health("a") is Health.UNHEALTHY
        await rig.clock.advance(7200)
        assert rig.health("a") is Health.UNHEALTHY
        backend.sink.clear(DeviceId("a"))
        await rig.clock.advance(300)
        assert rig.health("a") is Health.HEALTHY
        backend.sink.fault(DeviceId("nobody"), Cause("x", CauseKind.PERMANENT))
        assert rig.kinds()[-1] == "report-for-unknown-device"


async def test_a_watch_that_ends_is_started_again():
    backend = Watched("a")
    backend.ends = True
    async with running(backend) as rig:
        await rig.clock.advance(11)
        assert rig.kinds().count("watch-failed") >= 2


def test_a_resource_keeps_slots_that_may_be_in_use_until_they_are_known_to_be_free():
    listing = Listing()
    rules = (Rule(Selector(), GPU),)
    two = Inventory(tuple(Device(DeviceId(one)) for one in "ab"))
    one = Inventory((Device(DeviceId("a")),))
    assert [len(r.slots) for r in listing.settle(two, rules, None, 0.0)] == [2]
    (unknown,) = listing.settle(one, rules, None, 1000.0)
    assert [slot.retired_s is None for slot in unknown.slots] == [True, False]
    assert listing.waiting
    (held,) = listing.settle(one, rules, {GPU: frozenset({SlotId("b")})}, 2000.0)
    assert len(held.slots) == 2
    (free,) = listing.settle(one, rules, {}, 3000.0)
    assert len(free.slots) == 1
    assert not listing.waiting


def test_a_resource_appears_with_its_first_device_and_stays_while_a_rule_names_it():
    listing = Listing()
    rules = (Rule(Selector(), GPU),)
    assert listing.settle(Inventory(), rules, {}, 0.0) == ()
    one = Inventory((Device(DeviceId("a")),))
    assert len(listing.settle(one, rules, {}, 0.0)) == 1
    (empty,) = listing.settle(Inventory(), rules, {}, 1000.0)
    assert len(empty.slots) == 1  # retired just now
    (empty,) = listing.settle(Inventory(), rules, {}, 2000.0)
    assert empty.slots == ()
    assert listing.settle(Inventory(), (), {}, 3000.0) == ()


async def test_a_backend_that_prepares_makes_its_resources_ask_for_it():
    class Preparing(Box):
        async def prepare(self, _grant: object) -> None: ...

    async with running(Preparing("a")) as rig:
        (resource,) = Listing().settle(inventory_of([rig.source]), (Rule(Selector(), GPU),), {}, 0.0)
        assert make_allocator(lambda: {"box": rig.source}, rig._record).prepares(resource)
        assert not make_allocator(dict, rig._record).prepares(resource)


async def test_a_resource_whose_devices_are_gone_for_a_moment_keeps_its_options():
    class Preparing(Box):
        async def prepare(self, _grant: object) -> None: ...

    async with running(Preparing("a")) as rig:
        listing, rules = Listing(), (Rule(Selector(), GPU),)
        allocator = make_allocator(lambda: {"box": rig.source}, rig._record)
        (resource,) = listing.settle(inventory_of([rig.source]), rules, {}, 0.0)
        assert allocator.prepares(resource)
        (empty,) = listing.settle(Inventory(), rules, {}, 1.0)
        assert [slot.retired_s for slot in empty.slots] == [1.0]
        assert allocator.prepares(empty)  # else the endpoint would close its socket and register anew


class Hearing(Probed, Watched):
    probes = 0

    async def probe(self, device: Device) -> Any:
        self.probes += 1
        return await super().probe(device)


async def test_a_backend_that_hears_of_faults_is_asked_less_often_while_all_is_well():
    backend = Hearing("a")
    async with running(backend) as rig:
        rig.source.tempo = replace(rig.source.tempo, rest_interval_s=30)
        await rig.clock.advance(1)
        asked = backend.probes
        await rig.clock.advance(28)
        assert backend.probes == asked
        await rig.clock.advance(5)
        assert backend.probes == asked + 1
        # A fault ends the rest at once, and until it is over.
        assert backend.sink is not None
        backend.sink.fault(DeviceId("a"), Cause("burnt", CauseKind.TRANSIENT))
        await rig.clock.advance(0)
        assert backend.probes == asked + 2
        await rig.clock.advance(5)
        assert backend.probes == asked + 3


async def test_a_backend_that_only_answers_is_asked_as_often_as_ever():
    backend = Probed("a")
    async with running(backend) as rig:
        rig.source.tempo = replace(rig.source.tempo, rest_interval_s=30)
        await rig.clock.advance(5)
        backend.faults = {"a": Cause("burnt", CauseKind.PERMANENT)}
        await rig.clock.advance(5)
        assert not rig.health("a").usable


async def test_a_probe_that_began_before_a_device_was_cleared_does_not_bring_its_fault_back():
    asked, answer = asyncio.Event(), asyncio.Event()

    class Slow(Probed):
        async def probe(self, device: Device) -> Any:
            if self.faults:
                asked.set()
                await answer.wait()
            return self.faults.get(device.id)

    backend = Slow("a")
    async with running(backend) as rig:
        await rig.clock.advance(0)
        backend.faults = {"a": Cause("smoke", CauseKind.PERMANENT)}
        round_ = asyncio.create_task(rig.source.pulse())
        await asked.wait()
        rig.source.clear(DeviceId("a"))
        answer.set()
        await round_
        assert rig.health("a") is Health.HEALTHY
        await rig.source.pulse()  # it was not over after all
        assert rig.health("a") is Health.UNHEALTHY
