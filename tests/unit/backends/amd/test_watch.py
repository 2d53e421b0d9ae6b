"""GPUs that come, go and are cut anew, and a driver that comes late: all without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.amd import machines, tree
from tests.clock import FakeClock
from tests.unit.backends.amd.trees import backend
from tests.unit.backends.sink import Notes

from fairlead.backends.amd import AmdBackend
from fairlead.backends.amd.backend import SETTLE_S
from fairlead.model.errors import NotYet


@asynccontextmanager
async def watched(root: Path, clock: FakeClock, **options: Any) -> AsyncIterator[tuple[AmdBackend, Notes]]:
    amd, notes = backend(root, clock, **options), Notes()
    with suppress(NotYet):
        await amd.discover()
    watch = asyncio.create_task(amd.watch(notes))
    try:
        yield amd, notes
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await amd.close()


async def rescans(clock: FakeClock, notes: Notes, every_s: float = 5) -> None:
    """Until the change was found. The time is that of the poll, or of what a notice is followed by."""
    async with asyncio.timeout(10):
        while ("rescan",) not in notes.lines:
            await clock.advance(every_s)
            await asyncio.sleep(0.01)
    notes.take()


async def test_what_changes_is_found(tmp_path: Path) -> None:
    clock, machine = FakeClock(), machines.mi300x("SPX")
    few = replace(machine, gpus=machine.gpus[:2])
    tree.write(tmp_path, few, with_dev=False)
    async with watched(tmp_path, clock) as (amd, notes):
        for changed, count in (
            (few.without("0000:27:00.0"), 1),  # one is pulled out
            (few, 2),  # and comes back
            (few.change("0000:27:00.0", parts=8, compute="CPX", simds=152, bank_bytes=(2**34,) * 8), 9),  # cut anew
            (few.change("0000:27:00.0", memory="NPS4"), 2),
        ):
            tree.write(tmp_path, changed, with_dev=False)
            await rescans(clock, notes)
            assert len((await amd.discover()).devices) == count
        assert (await amd.discover()).devices[1].attributes["profile"] == "spx_nps4"


async def test_a_driver_that_comes_late_is_found(tmp_path: Path) -> None:
    clock = FakeClock()
    async with watched(tmp_path, clock) as (amd, notes):
        tree.write(tmp_path, machines.vegas(), with_dev=False)
        await rescans(clock, notes)
        assert len((await amd.discover()).devices) == 2


async def test_a_node_gives_notice_without_a_poll(tmp_path: Path) -> None:
    """The poll is an hour away: the kernel's notice of /dev/dri is what tells."""
    clock, machine = FakeClock(), machines.vegas()
    tree.write(tmp_path, machine.without("0000:1a:00.0"))
    async with watched(tmp_path, clock, poll="1h") as (_, notes):
        await clock.until_asleep(3600)
        tree.write(tmp_path, machine)
        await rescans(clock, notes, every_s=SETTLE_S)


async def test_nothing_is_asked_for_while_nothing_changes(tmp_path: Path) -> None:
    clock = FakeClock()
    tree.write(tmp_path, machines.vegas())
    async with watched(tmp_path, clock) as (_, notes):
        for _ in range(5):
            await clock.advance(5)
            await asyncio.sleep(0.01)
        assert notes.take() == []


async def test_a_spec_that_was_removed_is_written_again(tmp_path: Path) -> None:
    clock, spec = FakeClock(), tmp_path / "cdi/amd.com-gpu.json"
    tree.write(tmp_path, machines.vegas())
    async with watched(tmp_path, clock, ways=["cdi-cri"], cdi={"directory": str(spec.parent)}) as (amd, notes):
        spec.unlink()
        await rescans(clock, notes)
        await amd.discover()
        assert spec.exists()
