"""All sources together: how one set follows another, also before the first has spoken."""

from __future__ import annotations

import asyncio

import pytest
from tests.clock import FakeClock

from fairlead.engine.edits import make_allocator
from fairlead.engine.overlap import overlaps
from fairlead.engine.source import Source, Tempo
from fairlead.engine.sources import Sources, conditions_of, inventory_of
from fairlead.model.device import Device, DeviceNode
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import EditsFailed
from fairlead.model.health import Cause, CauseKind, Health
from fairlead.model.inventory import EMPTY, Findings, Inventory
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.resource import Resource
from fairlead.policy.offering.rules import Rule, make_offering


class Box:
    name = "box"

    def __init__(self, *devices: Device) -> None:
        self.answers = asyncio.Event()
        self.devices = devices

    async def discover(self) -> Findings:
        await self.answers.wait()
        return Findings(self.devices)

    def edits(self, grant: Grant) -> Edits:
        return Edits(env={"IDS": ",".join(grant.slots)})


async def test_the_first_scans_are_over_when_a_source_was_replaced_in_the_middle_of_its_own():
    sources = Sources(FakeClock(), lambda *_, **__: None, lambda: None, lambda: None)
    hangs, follows = Box(), Box()
    sources.start({"a": hangs}, Tempo())
    waiting = asyncio.create_task(sources.first_scans())
    await asyncio.sleep(0)
    sources.replace((), {"a": follows}, Tempo())
    await asyncio.sleep(0)
    assert not waiting.done()
    follows.answers.set()
    await asyncio.wait_for(waiting, 20)
    assert sources.live["a"].first_scan.is_set()
    await sources.stop()


X, GPU = DeviceId("x"), ResourceName("example.com/gpu")


def some_sources() -> tuple[Sources, FakeClock]:
    clock = FakeClock()
    return Sources(clock, lambda *_, **__: None, lambda: None, lambda: None), clock


async def source_of(name: str, *devices: Device) -> Source:
    box = Box(*devices)
    box.answers.set()
    source = Source(name, box, Tempo(), FakeClock(), lambda *_, **__: None, lambda: None)
    await source.scan()
    return source


@pytest.mark.parametrize("found", [True, False])
async def test_first_scans_end_without_a_silent_one_if_another_has_found_something(found: bool):
    sources, clock = some_sources()
    hangs, quick = Box(), Box(*([Device(X)] if found else []))
    quick.answers.set()
    sources.start({"hangs": hangs, "quick": quick}, Tempo())
    waiting = asyncio.create_task(sources.first_scans(5.0))
    await clock.advance(4.9)
    assert not waiting.done()
    await clock.advance(0.2)
    assert waiting.done() is found
    assert [source.name for source in sources.silent] == ["hangs"]
    assert sources.live["hangs"].problem == "it has not answered yet"
    hangs.answers.set()
    await asyncio.wait_for(sources.first_scans(), 20)
    assert sources.live["hangs"].problem == ""
    await waiting
    await sources.stop()


@pytest.mark.parametrize("turn", [1, -1])
async def test_an_id_of_two_backends_is_the_device_of_the_one_that_had_it_first(turn: int):
    one, other = await source_of("one", Device(X, model="1")), await source_of("other", Device(X, model="2"))
    both = [one, other][::turn]
    assert [device.backend for device in inventory_of(both).devices] == [both[0].name]
    had = inventory_of([other], EMPTY)
    assert [device.model for device in inventory_of(both, had).devices] == ["2"]


async def test_the_health_of_an_id_is_told_by_the_backend_that_has_it():
    one, other = await source_of("one", Device(X)), await source_of("other", Device(X))
    other.fault(X, Cause("smoke", CauseKind.PERMANENT))
    both = [one, other]
    assert conditions_of(both, inventory_of(both)).of(X).health is Health.HEALTHY
    assert conditions_of(both, inventory_of(both, inventory_of([other]))).of(X).health is Health.UNHEALTHY


async def test_a_device_that_two_backends_found_is_named():
    gpu, file = Device(X, nodes=(DeviceNode("/dev/x"),)), Device(DeviceId("file"), nodes=(DeviceNode("/dev/x"),))
    one, other = await source_of("one", gpu), await source_of("other", file)
    assert overlaps([one, await source_of("other", gpu)])[0].startswith("backends one and other both found x;")
    (said,) = overlaps([one, other], {X, file.id})
    assert "found the same device under two ids: x and file (/dev/x)" in said
    assert overlaps([one, other], {X}) == []  # a rule leaves the other one out


async def test_a_node_that_all_devices_of_a_backend_have_is_no_device():
    control = DeviceNode("/dev/control")
    pair = [Device(DeviceId(name), nodes=(control,)) for name in "ab"]
    one, other = await source_of("one", *pair), await source_of("other", Device(X, nodes=(control,)))
    assert overlaps([one, other], {"a", "b", X}) == []


def resource_of(sources: Sources) -> Resource:
    (made,) = make_offering(inventory_of(sources.speaking.values()), (Rule(resource=GPU),)).resources
    return made


async def test_a_source_that_has_just_ended_still_says_what_containers_get():
    """The list follows a moment later. A container must not start without its devices in between."""
    sources, clock = some_sources()
    old, new = Box(Device(X)), Box(Device(X))
    for box in (old, new):
        box.answers.set()
    sources.start({"old": old}, Tempo())
    await sources.first_scans()
    listed = resource_of(sources)
    sources.replace((), {"new": new}, Tempo())
    await clock.advance(0)
    assert set(sources.speaking) == {"new"}
    allocator = make_allocator(lambda: sources.editing, lambda *_, **__: None)
    grant = Grant(GPU, (listed.slots[0].id,), listed.inventory.devices)
    assert allocator.edits(listed, grant).env == {"IDS": "x"}
    await sources.stop()


def test_a_device_of_an_unknown_backend_is_refused_and_not_given_without_edits():
    (made,) = make_offering(Inventory((Device(X, backend="gone"),)), (Rule(resource=GPU),)).resources
    grant = Grant(GPU, (made.slots[0].id,), made.inventory.devices)
    with pytest.raises(EditsFailed, match=r"backend gone: .* is not configured any more"):
        make_allocator(dict, lambda *_, **__: None).edits(made, grant)


async def test_a_new_source_speaks_when_it_has_scanned_though_another_hangs():
    sources, clock = some_sources()
    kept, changed, hangs, quick = Box(Device(DeviceId("k"))), Box(Device(X)), Box(), Box(Device(DeviceId("q")))
    for box in (kept, changed, quick):
        box.answers.set()
    sources.start({"kept": kept, "changed": changed}, Tempo())
    await sources.first_scans()
    sources.replace({"kept"}, {"hangs": hangs, "quick": quick}, Tempo())
    await clock.advance(0)
    assert set(sources.speaking) == {"kept", "quick", "changed"}  # and what was replaced, until all have scanned
    assert [source.name for source in sources.shown] == ["kept", "quick", "changed", "hangs"]
    hangs.answers.set()
    await clock.advance(0)
    assert set(sources.speaking) == {"kept", "quick", "hangs"}
    await sources.stop()
