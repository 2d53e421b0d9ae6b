"""Health on a simulated driver: events, lost and hanging GPUs, errors of the event set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.nvml import Driver, Node, gpus
from tests.nvml.models import partitioned
from tests.nvml.node import DOUBLE_BIT_ECC, SINGLE_BIT_ECC
from tests.unit.backends.nvidia.drivers import installed, opened
from tests.unit.backends.sink import Notes

from fairlead.backends.nvidia import NvidiaBackend, events
from fairlead.model.device import Device
from fairlead.model.errors import BackendError
from fairlead.model.health import Cause


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with installed(Driver(gpus=gpus("A100", 3)), tmp_path) as node:
        yield node


@asynccontextmanager
async def watched(node: Node, **more: Any) -> AsyncIterator[tuple[NvidiaBackend, Notes]]:
    notes = Notes()
    async with opened(node, **more) as backend:
        await backend.discover()
        watch = asyncio.create_task(backend.watch(notes))
        try:
            yield backend, notes
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)


def uuid(node: Node, index: int) -> str:
    return node.driver.gpus[index].uuid


async def test_an_xid_is_told_of_its_gpu(node: Node) -> None:
    async with watched(node) as (_, notes):
        node.xid(1, 79)
        await notes.wait_for("fault", uuid(node, 1), "xid-79")
        node.xid(0, 0)  # a number that says nothing is still a report
        await notes.wait_for("fault", uuid(node, 0), "xid-0")
        assert len(notes.lines) == 2


async def test_an_event_between_the_scan_and_the_watch_is_not_lost(node: Node) -> None:
    notes = Notes()
    async with opened(node) as backend:
        await backend.discover()
        node.xid(2, 48)
        watch = asyncio.create_task(backend.watch(notes))
        await notes.wait_for("fault", uuid(node, 2), "xid-48")
        watch.cancel()


async def test_a_double_bit_error_counts_and_a_corrected_one_does_not(node: Node) -> None:
    async with watched(node) as (_, notes):
        node.event(0, SINGLE_BIT_ECC, 0)
        node.event(1, DOUBLE_BIT_ECC, 0)
        await notes.wait_for("fault", uuid(node, 1), "ecc-double-bit")
        assert len(notes.lines) == 1


async def test_an_event_of_an_instance_reaches_that_instance_and_one_of_the_gpu_all(node: Node) -> None:
    parts = partitioned(node.driver.gpus[0], "3g.20gb", "3g.20gb")
    node.become(replace(node.driver, gpus=(parts, *node.driver.gpus[1:])))
    first, second = parts.migs
    async with watched(node, mig="mixed") as (_, notes):
        node.xid(0, 48, gi=second.gi, ci=second.ci)
        await notes.wait_for("fault", second.uuid, "xid-48")
        node.xid(0, 48, gi=99, ci=0)
        node.xid(0, 79)
        await notes.wait_for("fault", first.uuid, "xid-79")
        await notes.wait_for("fault", second.uuid, "xid-79")
        assert len(notes.lines) == 3


async def test_nothing_is_watched_where_all_checks_are_off(node: Node) -> None:
    async with watched(node, health={"ignoredXids": "all"}) as (backend, notes):
        found = await backend.discover()
        node.xid(0, 79)
        node.lose(1)
        assert [*(await backend.probe_all(found.devices)).values()] == [None, None, None]
        assert notes.lines == []


async def test_one_xid_can_be_watched_alone(node: Node) -> None:
    async with watched(node, health={"ignoredXids": "all", "watchedXids": [79]}) as (_, notes):
        node.event(0, DOUBLE_BIT_ECC, 0)
        node.xid(1, 79)
        await notes.wait_for("fault", uuid(node, 1), "xid-79")
        assert len(notes.lines) == 1


async def test_a_lost_gpu_is_told_at_once_and_its_neighbours_are_well(node: Node) -> None:
    async with watched(node) as (backend, notes):
        found = await backend.discover()
        node.lose(1)
        node.xid(2, 31)  # wakes the wait, as the real driver's own XID would
        await notes.wait_for("fault", uuid(node, 1), "gpu-lost")
        causes = [*(await backend.probe_all(found.devices)).values()]
        assert [cause.code if isinstance(cause, Cause) else cause for cause in causes] == [None, "gpu-lost", None]
        node.find(1)
        assert [*(await backend.probe_all(found.devices)).values()] == [None, None, None]


async def test_an_error_of_the_event_set_withdraws_nobody(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    opens: list[object] = []
    start = events.Events.open

    def count(self: events.Events, nvml: Any, uuids: Any) -> tuple[str, ...]:
        opens.append(uuids)
        return start(self, nvml, uuids)

    monkeypatch.setattr(events.Events, "open", count)
    async with opened(node) as backend:
        await backend.discover()
        watch = asyncio.create_task(backend.watch(notes))
        node.fail_wait(999)
        with pytest.raises(BackendError, match="nvmlEventSetWait"):
            await asyncio.wait_for(watch, 10)
        assert notes.take() == [("rescan",)]
        # The scan that was asked for listens anew; the next one has no reason to.
        await backend.discover()
        await backend.discover()
        assert len(opens) == 2
        watch = asyncio.create_task(backend.watch(notes))
        node.xid(0, 79)
        await notes.wait_for("fault", uuid(node, 0), "xid-79")
        watch.cancel()


async def test_an_event_that_names_no_gpu_has_them_all_asked(node: Node) -> None:
    async with watched(node) as (_, notes):
        node.fault("nvmlDeviceGetUUID", 999, gpu=1)
        node.stray(79)
        await notes.wait_for("fault", uuid(node, 1), "nvml-error")
        assert len(notes.lines) == 1
        node.xid(0, 79)
        await notes.wait_for("fault", uuid(node, 0), "xid-79")


async def test_gpus_without_events_are_told_of_once_and_offered(node: Node) -> None:
    mute = replace(node.driver.gpus[1], events=0)
    node.become(replace(node.driver, gpus=(node.driver.gpus[0], mute, node.driver.gpus[2])))
    async with watched(node) as (backend, notes):
        found = await backend.discover()
        assert len(found.devices) == 3
        assert found.problems == (f"{mute.uuid}: its driver reports no XIDs; only probes tell of its faults",)
        node.xid(2, 79)
        await notes.wait_for("fault", uuid(node, 2), "xid-79")


async def test_where_events_cannot_be_had_at_all_gpus_are_offered_and_probed(node: Node) -> None:
    node.fault("nvmlEventSetCreate", 999)
    async with watched(node) as (backend, _):
        found = await backend.discover()
        assert len(found.devices) == 3
        assert found.problems[0].startswith("no events: nvmlEventSetCreate")
        node.lose(0)
        assert await probe(backend, found.devices[0]) == "gpu-lost"
        node.mend()
        assert (await backend.discover()).problems == ()  # and they are tried again


async def test_events_go_on_after_gpus_came_and_went(node: Node) -> None:
    five = gpus("A100", 5)
    async with watched(node) as (backend, notes):
        node.become(replace(node.driver, gpus=five))
        assert len((await backend.discover()).devices) == 5
        node.xid(4, 79)
        await notes.wait_for("fault", five[4].uuid, "xid-79")


async def test_a_change_that_is_refused_leaves_nobody_unheard(node: Node) -> None:
    async with watched(node, mig="single") as (backend, notes):
        parts = partitioned(node.driver.gpus[0], "7g.40gb")
        node.become(replace(node.driver, gpus=(parts, *node.driver.gpus[1:])))
        with pytest.raises(BackendError, match="same migEnabled value"):
            await backend.discover()
        node.xid(2, 79)
        await notes.wait_for("fault", uuid(node, 2), "xid-79")


async def test_a_hang_is_told_of_its_gpu_and_the_others_have_no_data(node: Node) -> None:
    async with watched(node) as (backend, _):
        found = (await backend.discover()).devices
        node.hang("nvmlDeviceGetMemoryInfo", gpu=1)
        first, second, third = [await probe(backend, device) for device in found]
        assert (first, second) == (None, "nvml-hang")
        assert "does not answer" in str(third)
        node.mend()
        async with asyncio.timeout(20):
            while [await probe(backend, device) for device in found] != [None, None, None]:  # noqa: ASYNC110 - a thread
                await asyncio.sleep(0.01)


async def probe(backend: NvidiaBackend, device: Device) -> str | None:
    verdict = (await backend.probe_all([device]))[device.id]
    if isinstance(verdict, Exception):
        return str(verdict)
    return verdict.code if verdict else None


async def test_a_new_node_or_a_wiped_directory_asks_for_a_scan(node: Node) -> None:
    (node.root / "cdi").mkdir()
    async with watched(node, ways=["cdi-cri"]) as (_, notes):
        (node.root / "dev/nvidia7").touch()
        await notes.wait_for("rescan")
        notes.take()
        for spec in (node.root / "cdi").iterdir():
            spec.unlink()
        await notes.wait_for("rescan")


async def test_a_gpu_that_answers_late_is_heard_as_well(node: Node) -> None:
    node.fault("nvmlDeviceGetUUID", 999, gpu=1)
    async with watched(node) as (backend, notes):
        await backend.discover()  # a new session, as a GPU was missing; it still is
        node.mend()
        found = await backend.discover()
        assert len(found.devices) == 3
        node.xid(1, 79)
        await notes.wait_for("fault", uuid(node, 1), "xid-79")
