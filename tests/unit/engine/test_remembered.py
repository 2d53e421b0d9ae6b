"""Devices that a file remembers, in the engine: offered early, confirmed by a scan before a container gets one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.clock import FakeClock
from tests.unit.engine.box import Box

from fairlead.engine.edits import CONFIRM_S as PATIENCE_S
from fairlead.engine.edits import make_allocator
from fairlead.engine.source import Tempo
from fairlead.engine.sources import EARLY_S, Sources, inventory_of
from fairlead.model.device import Device, DeviceNode
from fairlead.model.edits import Edits
from fairlead.model.errors import UnfitSlots
from fairlead.model.inventory import ALL_HEALTHY, Findings
from fairlead.model.names import ResourceName
from fairlead.model.resource import Resource
from fairlead.policy.offering.rules import Rule, make_offering


class Slow(Box):
    """A backend that answers when a test lets it."""

    def __init__(self, *ids: str) -> None:
        super().__init__(*ids)
        self.answers = asyncio.Event()

    async def discover(self) -> Findings:
        await self.answers.wait()
        return await super().discover()

    def edits(self, grant: Any) -> Edits:
        return Edits(env={"IDS": ",".join(grant.slots)})


RULES = (Rule(resource=ResourceName("example.com/gpu")),)
OLD = Findings((Device("a", backend="box"), Device("b", backend="box")))


def started(*ids: str) -> tuple[Sources, Slow, FakeClock, list[str]]:
    clock, events = FakeClock(), list[str]()
    sources = Sources(clock, lambda event, **_: events.append(event), lambda: None, lambda: None)
    backend = Slow(*ids)
    sources.start({"box": backend}, Tempo(), remembered={"box": OLD})
    return sources, backend, clock, events


def resource(sources: Sources) -> Resource:
    return make_offering(inventory_of(sources.speaking.values()), RULES).resources[0]


async def test_remembered_devices_are_offered_after_a_moment_and_not_before():
    sources, _, clock, _ = started("a", "b")
    waiting = asyncio.create_task(sources.first_scans(5.0))
    await clock.advance(EARLY_S / 2)
    assert not waiting.done()
    await clock.advance(EARLY_S)
    assert waiting.done()
    assert [slot.id for slot in resource(sources).slots] == ["a", "b"]
    await sources.stop()


async def test_one_that_has_nothing_remembered_is_waited_for_as_ever():
    sources, _, clock, _ = started("a")
    other = Slow("c")
    sources.start({"other": other}, Tempo())
    waiting = asyncio.create_task(sources.first_scans(5.0))
    await clock.advance(4.0)
    assert not waiting.done()
    other.answers.set()
    await clock.advance(0.1)
    assert waiting.done()
    await sources.stop()


async def test_a_scan_that_works_takes_their_place():
    sources, backend, clock, events = started("b", "c")
    backend.answers.set()
    await clock.advance(0.1)
    source = sources.live["box"]
    assert [device.id for device in source.findings.devices] == ["b", "c"]
    assert not source.remembered
    assert events == ["device-found", "device-found", "device-gone"]  # what this process found, whatever was known
    await sources.stop()


async def test_a_first_scan_that_fails_drops_them():
    sources, backend, clock, events = started("a")
    backend.devices = OSError("no driver")
    backend.answers.set()
    await clock.advance(0.1)
    assert sources.live["box"].findings == Findings()
    assert events == ["inventory-dropped", "scan-failed"]
    await sources.stop()


async def test_a_container_gets_a_remembered_device_when_a_scan_has_confirmed_it():
    sources, backend, clock, _ = started("a", "b")
    allocator = make_allocator(lambda: sources.editing, lambda *_, **__: None)
    answer = allocator.allocate(resource(sources), ALL_HEALTHY, [["a"]])
    assert not isinstance(answer, list)
    task = asyncio.ensure_future(answer)
    await clock.advance(0.1)
    assert not task.done()
    backend.answers.set()
    await clock.advance(0.1)
    assert (await task)[0].env == {"IDS": "a"}
    assert isinstance(allocator.allocate(resource(sources), ALL_HEALTHY, [["b"]]), list)
    await sources.stop()


async def test_a_container_does_not_get_one_that_is_gone():
    sources, backend, _, _ = started("b")
    events: list[str] = []
    allocator = make_allocator(lambda: sources.editing, lambda event, **_: events.append(event))
    answer = allocator.allocate(resource(sources), ALL_HEALTHY, [["a"]])
    backend.answers.set()
    assert not isinstance(answer, list)
    with pytest.raises(UnfitSlots, match="the first scan did not find its device"):
        await answer
    assert events == ["allocate-refused"]
    await sources.stop()


async def test_a_container_does_not_get_one_whose_record_is_another():
    """The record says which device nodes a container gets, and it came from a file."""
    sources, backend, _, _ = started("a")
    backend.devices = [Device("a", nodes=(DeviceNode("/dev/other"),))]
    allocator = make_allocator(lambda: sources.editing, lambda *_, **__: None)
    answer = allocator.allocate(resource(sources), ALL_HEALTHY, [["a"]])
    backend.answers.set()
    assert not isinstance(answer, list)
    with pytest.raises(UnfitSlots, match="the first scan found its device changed"):
        await answer
    await sources.stop()


async def test_a_container_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fairlead.engine.edits.CONFIRM_S", 0.01)
    sources, _, _, _ = started("a")
    allocator = make_allocator(lambda: sources.editing, lambda *_, **__: None)
    answer = allocator.allocate(resource(sources), ALL_HEALTHY, [["a"]])
    assert not isinstance(answer, list)
    with pytest.raises(UnfitSlots, match="no scan of the backend box has confirmed it"):
        await answer
    with pytest.raises(UnfitSlots):
        await allocator.prepare(resource(sources), ["a"])
    assert PATIENCE_S <= 10
    await sources.stop()


async def test_a_reload_does_not_turn_them_into_something_confirmed():
    sources, _, clock, _ = started("a")
    fresh = Slow("a")
    sources.replace((), {"box": fresh}, Tempo())
    assert sources.live["box"].remembered
    fresh.devices = OSError("no driver")
    fresh.answers.set()
    await clock.advance(0.1)
    assert sources.live["box"].findings == Findings()
    await sources.stop()
