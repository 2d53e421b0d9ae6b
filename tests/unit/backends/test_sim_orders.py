"""Orders: what goes wrong with a fleet, by hand or by a timeline, and how it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.clock import FakeClock, settle
from tests.unit.backends.sink import Notes

from fairlead.backends.sim import SimBackend, open_backend
from fairlead.model.device import Device
from fairlead.model.edits import Grant
from fairlead.model.errors import BackendError, ConfigError, UsageError
from fairlead.model.health import Cause, CauseKind
from fairlead.model.names import ResourceName, SlotId
from fairlead.model.ports import Backend, Closes, EditsGrants, Probes, Steers, Watches

PLAIN = {"devices": [{"count": 3, "id": "card-{n}"}]}
PARTED = {
    "devices": [{"count": 2, "id": "big-{n}", "partitions": [{"profile": "half", "count": 2, "id": "{parent}.{i}"}]}]
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sim(clock: FakeClock) -> SimBackend:
    return open_backend({"fleet": PLAIN}, clock)


@asynccontextmanager
async def watching(backend: SimBackend, notes: Notes) -> AsyncIterator[Notes]:
    task = asyncio.create_task(backend.watch(notes))
    await settle()
    try:
        yield notes
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def cards(backend: SimBackend) -> dict[str, Device]:
    return {device.id: device for device in (await backend.discover()).devices}


def test_it_has_every_port_a_backend_can_have(sim: SimBackend) -> None:
    for port in (Backend, Watches, Probes, EditsGrants, Steers, Closes):
        assert isinstance(sim, port)


async def test_a_fault_is_told_at_once_and_found_by_probes_until_it_is_cleared(sim: SimBackend) -> None:
    device = (await cards(sim))["card-1"]
    assert await sim.probe(device) is None
    async with watching(sim, Notes()) as notes:
        said = sim.steer({"do": "fail", "device": 1, "xid": 79})
        assert said == "1 (card-1) fails: xid-79: GPU has fallen off the bus (permanent)"
        assert notes.take() == [("fault", "card-1", "xid-79")]
        assert await sim.probe(device) == Cause("xid-79", CauseKind.PERMANENT, "GPU has fallen off the bus")
        assert sim.steer({"do": "clear", "device": 1, "xid": 79}) == "1 (card-1): xid-79 is cleared"
        assert notes.take() == [("clear", "card-1", "xid-79")]
        assert await sim.probe(device) is None


@pytest.mark.parametrize(
    ("order", "cause"),
    [
        ({"xid": 13}, Cause("xid-13", CauseKind.APPLICATION, "graphics engine exception")),
        ({"xid": 48}, Cause("xid-48", CauseKind.NEEDS_RESET, "double-bit ECC error")),
        ({"xid": 94}, Cause("xid-94", CauseKind.TRANSIENT, "contained memory error")),
        ({"xid": 555}, Cause("xid-555", CauseKind.NEEDS_RESET, "reported by the driver")),
        ({"xid": "79", "kind": "transient"}, Cause("xid-79", CauseKind.TRANSIENT, "GPU has fallen off the bus")),
        ({"code": "fan", "message": "it smokes"}, Cause("fan", CauseKind.NEEDS_RESET, "it smokes")),
        ({}, Cause("sim-fault", CauseKind.NEEDS_RESET)),
    ],
)
async def test_a_fault_has_the_cause_it_is_given_or_that_its_xid_is_known_for(
    sim: SimBackend, order: dict[str, Any], cause: Cause
) -> None:
    sim.steer({"do": "fail", "device": "card-0", **order})
    assert await sim.probe((await cards(sim))["card-0"]) == cause


async def test_the_newest_of_several_faults_is_probed_and_clearing_one_leaves_the_others(sim: SimBackend) -> None:
    device = (await cards(sim))["card-0"]
    sim.steer({"do": "fail", "device": 0, "code": "one"})
    sim.steer({"do": "fail", "device": 0, "code": "two"})
    assert str(await sim.probe(device)) == "two"
    sim.steer({"do": "clear", "device": 0, "code": "two"})
    assert str(await sim.probe(device)) == "one"
    sim.steer({"do": "clear", "device": 0})
    assert await sim.probe(device) is None


async def test_a_watcher_that_joins_late_is_told_what_stands(sim: SimBackend) -> None:
    sim.steer({"do": "fail", "device": 2, "code": "fan"})
    sim.steer({"do": "fail", "device": 0, "code": "fan"})
    sim.steer({"do": "unplug", "device": 0})
    async with watching(sim, Notes()) as notes:
        assert notes.take() == [("fault", "card-2", "fan")]


async def test_recovery_is_told_unless_it_is_silent(sim: SimBackend) -> None:
    device = (await cards(sim))["card-1"]
    async with watching(sim, Notes()) as notes:
        for silent, told in ((False, [("clear", "card-1", "*")]), (True, [])):
            sim.steer({"do": "fail", "device": 1})
            notes.take()
            sim.steer({"do": "recover", "device": 1, "silent": silent})
            assert notes.take() == told
            assert await sim.probe(device) is None


async def test_an_unplugged_device_is_gone_and_comes_back_clean(sim: SimBackend) -> None:
    device = (await cards(sim))["card-1"]
    async with watching(sim, Notes()) as notes:
        sim.steer({"do": "fail", "device": 1, "xid": 79})
        notes.take()
        assert sim.steer({"do": "unplug", "device": 1}) == "1 (card-1) is unplugged"
        assert notes.take() == [("rescan",)]
        assert list(await cards(sim)) == ["card-0", "card-2"]
        assert await sim.probe(device) is None
        assert sim.steer({"do": "unplug", "device": 1}) == "1 (card-1) is unplugged already"
        assert notes.take() == []
        assert sim.steer({"do": "plug", "device": 1}) == "1 (card-1) is plugged in"
        assert notes.take() == [("clear", "card-1", "*"), ("rescan",)]
        assert list(await cards(sim)) == ["card-0", "card-1", "card-2"]
        assert await sim.probe(device) is None
        assert sim.steer({"do": "plug", "device": 1}) == "1 (card-1) is plugged in already"


async def test_new_devices_join_behind_the_others(sim: SimBackend) -> None:
    async with watching(sim, Notes()) as notes:
        said = sim.steer({"do": "plug", "new": {"count": 2, "id": "new-{n}", "links": "numa"}})
        assert said == "3 (new-3) and 1 more is plugged in"
        assert notes.take() == [("rescan",)]
    found = await sim.discover()
    assert [device.id for device in found.devices][3:] == ["new-3", "new-4"]
    assert [device.index for device in found.devices][3:] == ["3", "4"]
    assert found.links.between(found.devices[3].id, found.devices[4].id) == 10
    with pytest.raises(UsageError, match="a device 'new-3' exists already"):
        sim.steer({"do": "plug", "new": {"id": "new-3"}})


async def test_links_of_an_unplugged_device_are_gone_with_it(clock: FakeClock) -> None:
    sim = open_backend(
        {"fleet": {"devices": [{"count": 3, "id": "c{n}", "links": {"pairs": {"0-1": 5, "1-2": 6}}}]}}, clock
    )
    sim.steer({"do": "unplug", "device": 0})
    assert dict((await sim.discover()).links.items()) == {("c1", "c2"): 6}


async def test_what_befalls_a_partitioned_device_befalls_its_parts(clock: FakeClock) -> None:
    sim = open_backend({"fleet": PARTED}, clock)
    async with watching(sim, Notes()) as notes:
        assert sim.steer({"do": "fail", "device": "big-1"}).startswith("1:0 (big-1.0) and 1 more fails: sim-fault")
        assert notes.take() == [("fault", "big-1.0", "sim-fault"), ("fault", "big-1.1", "sim-fault")]
        sim.steer({"do": "recover", "device": "1:0"})
        assert notes.take() == [("clear", "big-1.0", "*")]
        sim.steer({"do": "unplug", "device": "0"})
        assert list(await cards(sim)) == ["big-1.0", "big-1.1"]


async def test_a_slow_device_answers_late(sim: SimBackend, clock: FakeClock) -> None:
    device = (await cards(sim))["card-0"]
    sim.steer({"do": "fail", "device": 0})
    assert sim.steer({"do": "slow", "device": 0, "takes": "2s"}) == "0 (card-0): probes take 2 s"
    probe = asyncio.create_task(sim.probe(device))
    await clock.advance(1.9)
    assert not probe.done()
    await clock.advance(0.2)
    assert str(probe.result()) == "sim-fault"


async def test_a_hung_device_answers_only_after_it_recovers(sim: SimBackend, clock: FakeClock) -> None:
    found = await cards(sim)
    assert sim.steer({"do": "hang", "device": 0}) == "0 (card-0): probes do not answer"
    probe = asyncio.create_task(sim.probe(found["card-0"]))
    assert await sim.probe(found["card-1"]) is None
    await clock.advance(3600)
    sim.steer({"do": "fail", "device": 1})
    await settle()
    assert not probe.done()
    sim.steer({"do": "recover", "device": 0})
    await settle()
    assert probe.result() is None


async def test_closing_lets_go_of_a_probe_that_hangs(sim: SimBackend) -> None:
    device = (await cards(sim))["card-0"]
    sim.steer({"do": "hang", "device": 0})
    probe = asyncio.create_task(sim.probe(device))
    await settle()
    await sim.close()
    await settle()
    assert probe.done()


async def test_scans_fail_until_all_recovers(sim: SimBackend) -> None:
    async with watching(sim, Notes()) as notes:
        sim.steer({"do": "fail", "device": 0})
        assert sim.steer({"do": "scan-error", "message": "no driver"}) == "scans fail: no driver"
        with pytest.raises(BackendError, match="sim: scan failed: no driver"):
            await sim.discover()
        notes.take()
        assert sim.steer({"do": "recover"}) == "everything is well again"
        assert ("clear", "card-0", "*") in notes.lines
        assert ("rescan",) in notes.lines
        assert len(await cards(sim)) == 3


async def test_scans_may_be_slow(sim: SimBackend, clock: FakeClock) -> None:
    assert sim.steer({"do": "scan-slow", "takes": 7}) == "scans take 7 s"
    scan = asyncio.create_task(sim.discover())
    await clock.advance(6)
    assert not scan.done()
    await clock.advance(2)
    assert len(scan.result().devices) == 3


async def test_a_timeline_runs_by_the_clock_in_the_order_of_its_times(clock: FakeClock) -> None:
    timeline = [
        {"at": "1m", "do": "recover", "device": 1},
        {"at": "5s", "do": "fail", "device": 1, "xid": 79},
        {"at": 5, "do": "unplug", "device": 2},
    ]
    sim = open_backend({"fleet": {**PLAIN, "timeline": timeline}}, clock)
    async with watching(sim, Notes()) as notes:
        await clock.advance(4.9)
        assert notes.take() == []
        await clock.advance(0.1)
        assert notes.take() == [("fault", "card-1", "xid-79"), ("rescan",)]
        await clock.advance(54.9)
        assert notes.take() == []
        await clock.advance(0.1)
        assert notes.take() == [("clear", "card-1", "*")]


async def test_a_timeline_of_the_options_stands_in_for_the_fleets_own_and_may_run_faster(clock: FakeClock) -> None:
    fleet = {**PLAIN, "timeline": [{"at": 1, "do": "unplug", "device": 0}]}
    timeline = [{"at": 20, "do": "fail", "device": 1}]
    sim = open_backend({"fleet": fleet, "timeline": timeline, "speed": 10}, clock)
    async with watching(sim, Notes()) as notes:
        await clock.advance(1.9)
        assert notes.take() == []
        await clock.advance(0.1)
        assert notes.take() == [("fault", "card-1", "sim-fault")]


async def test_a_watch_that_is_started_again_goes_on_where_the_timeline_was(clock: FakeClock) -> None:
    timeline = [{"at": at, "do": "fail", "device": 0, "code": f"at-{at}"} for at in (1, 10)]
    sim = open_backend({"fleet": PLAIN, "timeline": timeline}, clock)
    async with watching(sim, Notes()) as notes:
        await clock.advance(2)
        assert notes.take() == [("fault", "card-0", "at-1")]
    async with watching(sim, Notes()) as notes:
        assert notes.take() == [("fault", "card-0", "at-1")]
        await clock.advance(7.9)
        assert notes.take() == []
        await clock.advance(0.1)
        assert notes.take() == [("fault", "card-0", "at-10")]


@pytest.mark.parametrize("speed", [1, 8])
async def test_a_flapping_device_is_bad_half_the_time(clock: FakeClock, speed: int) -> None:
    sim = open_backend({"fleet": PLAIN, "speed": speed}, clock)
    async with watching(sim, Notes()) as notes:
        said = sim.steer({"do": "flap", "device": 0, "xid": 94, "times": 2, "every": "10s"})
        assert said == "0 (card-0) fails and clears 2 times, every 10 s: xid-94: contained memory error"
        seen = []
        for _ in range(24):
            await clock.advance(0)
            seen.append("".join(line[0][0] for line in notes.take()) or "-")
            await clock.advance(1 / speed)
    assert "".join(seen) == "f----c----f----c--------"


async def test_a_recovery_ends_the_flapping_of_that_device_and_leaves_the_timeline(clock: FakeClock) -> None:
    sim = open_backend({"fleet": PLAIN, "timeline": [{"at": 100, "do": "fail", "device": 0, "code": "later"}]}, clock)
    async with watching(sim, Notes()) as notes:
        sim.steer({"do": "flap", "device": 0, "every": 10})
        sim.steer({"do": "flap", "device": 1, "every": 10})
        await clock.advance(1)
        sim.steer({"do": "recover", "device": 0})
        notes.take()
        await clock.advance(98)
        assert {line[1] for line in notes.take()} == {"card-1"}
        await clock.advance(2)
        assert notes.take() == [("fault", "card-0", "later")]


async def test_a_watcher_that_has_left_is_told_nothing(sim: SimBackend) -> None:
    async with watching(sim, Notes()) as notes:
        pass
    sim.steer({"do": "fail", "device": 0})
    assert notes.take() == []


async def test_an_order_by_hand_comes_before_a_later_one_of_the_timeline(clock: FakeClock) -> None:
    sim = open_backend({"fleet": PLAIN, "timeline": [{"at": 100, "do": "unplug", "device": 0}]}, clock)
    async with watching(sim, Notes()) as notes:
        sim.steer({"do": "flap", "device": 1, "times": 1, "every": 2})
        await clock.advance(1)
        assert notes.take() == [("fault", "card-1", "sim-fault"), ("clear", "card-1", "sim-fault")]


@pytest.mark.parametrize("ref", ["card-1", "1", 1])
def test_a_device_may_be_named_by_id_or_index(sim: SimBackend, ref: str | int) -> None:
    assert sim.steer({"do": "hang", "device": ref}) == "1 (card-1): probes do not answer"


def test_a_device_may_be_named_by_the_beginning_of_its_id(clock: FakeClock) -> None:
    sim = open_backend({"fleet": {"devices": [{"id": "abc-x"}, {"id": "abd-x"}]}}, clock)
    assert sim.steer({"do": "hang", "device": "abd"}) == "1 (abd-x): probes do not answer"
    with pytest.raises(UsageError, match=r"'ab' fits 2 devices: abc-x, abd-x\. Use more of the id"):
        sim.steer({"do": "hang", "device": "ab"})


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ({"do": "fial", "device": 1}, "order: do: unknown value 'fial'; did you mean 'fail'? Known: clear, fail,"),
        ({"device": 1}, "order: the key 'do' is missing"),
        ({"do": "fail"}, "order: the key 'device' is missing"),
        ({"do": "fail", "device": 1, "knd": "x"}, "order: unknown key 'knd'; did you mean 'kind'? Known: at, code,"),
        ({"do": "fail", "device": 1, "kind": "x"}, "order: kind: unknown value 'x'. Known: application, needs-reset,"),
        ({"do": "fail", "device": 1, "xid": 3, "code": "a"}, "give an xid or a code, not both"),
        ({"do": "fail", "device": "card-9"}, "no device 'card-9'; did you mean 'card-"),
        ({"do": "fail", "device": ""}, "no device ''. Known: 0, 1, 2"),
        ({"do": "slow", "device": 1, "takes": "5q"}, "order: takes: expected a duration, such as 250ms, 5s, 1m"),
        ({"do": "slow", "device": 1, "takes": float("nan")}, "order: takes: expected a duration"),
        ({"do": "plug"}, "plug: name the device that comes back, or give new ones under 'new'"),
        ({"do": "plug", "device": 1, "new": {}}, "plug: name the device that comes back"),
        ({"do": "hang", "device": 1, "at": 5}, "at: an order given by hand is carried out now"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused_with_a_way_out(
    sim: SimBackend, order: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        sim.steer(order)
    assert message in str(caught.value)


def test_a_timeline_is_rehearsed_when_it_is_opened(clock: FakeClock) -> None:
    timeline = [
        {"at": 9, "do": "fail", "device": "new-3"},
        {"at": 1, "do": "plug", "new": {"id": "new-{n}"}},
        {"at": 1, "do": "unplug", "device": 7},
        {"at": 1, "do": "fail", "device": 7},
    ]
    with pytest.raises(ConfigError) as caught:
        open_backend({"fleet": PLAIN, "timeline": timeline}, clock)
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["timeline[2]", "timeline[3]"]


async def test_a_rehearsal_leaves_no_trace(clock: FakeClock) -> None:
    sim = open_backend({"fleet": PLAIN, "timeline": [{"at": 1, "do": "unplug", "device": 0}]}, clock)
    assert len(await cards(sim)) == 3


async def test_a_container_learns_its_devices_and_gets_their_nodes(clock: FakeClock) -> None:
    nodes = {"count": 2, "id": "card-{n}", "nodes": ["/dev/ctl", "/dev/card{n}"]}
    sim = open_backend({"fleet": {"devices": [nodes]}}, clock)
    devices = (await sim.discover()).devices
    grant = Grant(ResourceName("example.com/card"), tuple(SlotId(device.id) for device in devices), devices)
    edits = sim.edits(grant)
    assert edits.env == {"FAIRLEAD_SIM_DEVICES_EXAMPLE_COM_CARD": "card-0,card-1"}
    assert [node.path for node in edits.nodes] == ["/dev/ctl", "/dev/card0", "/dev/card1"]
    await sim.close()


async def test_a_simulated_device_has_no_nodes_by_default(sim: SimBackend) -> None:
    assert not any(device.nodes for device in (await sim.discover()).devices)
