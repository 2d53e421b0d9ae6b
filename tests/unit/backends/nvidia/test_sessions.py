"""A fresh look at the driver, as SIGHUP asks for: a new session, without losing events, devices or what is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.nvml import Driver, Node, gpus
from tests.nvml.models import partitioned
from tests.unit.backends.nvidia.drivers import installed, opened
from tests.unit.backends.nvidia.ward import Ward, ward
from tests.unit.backends.sink import Notes

from fairlead.backends.nvidia import library
from fairlead.backends.nvidia.errors import DriverAbsent
from fairlead.engine.source import RETRY_S
from fairlead.model.health import Health


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with installed(Driver(gpus=gpus("A100", 4)), tmp_path) as node:
        yield node


async def test_gpus_that_left_unseen_are_gone_after_a_fresh_look(node: Node) -> None:
    four = node.driver.gpus
    async with opened(node) as backend:
        await backend.discover()
        node.become_unseen(replace(node.driver, gpus=four[:2]))
        backend.reopen()
        found = await backend.discover()
        assert [device.id for device in found.devices] == [gpu.uuid for gpu in four[:2]]
        assert found.problems == ()


async def test_instances_that_left_unseen_are_gone_after_a_fresh_look(node: Node) -> None:
    first, *others = node.driver.gpus
    parts = partitioned(first, "3g.20gb", "3g.20gb")
    node.become(replace(node.driver, gpus=(parts, *others)))
    async with opened(node, mig="mixed") as backend:
        await backend.discover()
        node.become_unseen(replace(node.driver, gpus=(partitioned(first, "7g.40gb"), *others)))
        backend.reopen()
        found = (await backend.discover()).devices
        assert [device.attributes.get("profile") for device in found] == ["7g.40gb", None, None, None]


async def test_a_fresh_look_keeps_listening(node: Node) -> None:
    notes = Notes()
    async with opened(node) as backend:
        await backend.discover()
        watch = asyncio.create_task(backend.watch(notes))
        for index in range(3):
            backend.reopen()
            await backend.discover()
            node.xid(index, 79)
            await notes.wait_for("fault", node.driver.gpus[index].uuid, "xid-79")
        watch.cancel()


async def test_a_fault_between_two_sessions_is_found_by_asking(node: Node) -> None:
    async with ward(node) as it:
        await it.source.pulse()
        node.change(3, remap_pending=1)  # and its event was lost
        it.source.rescan(fresh=True)
        await it.source.scan()
        assert it.health(node.driver.gpus[3].uuid) is Health.UNHEALTHY


async def test_what_is_known_of_a_gpu_outlasts_a_fresh_look(node: Node) -> None:
    uuid = node.driver.gpus[1].uuid
    async with ward(node) as it:
        node.xid(1, 63)
        await it.until(uuid, Health.UNHEALTHY)
        await it.source.pulse()
        it.source.rescan(fresh=True)
        await it.source.scan()
        await it.pass_time()
        assert it.health(uuid) is Health.UNHEALTHY


async def test_a_session_that_cannot_be_started_withdraws_nothing_and_is_tried_again(node: Node) -> None:
    notes = Notes()
    async with opened(node) as backend:
        devices = (await backend.discover()).devices
        watch = asyncio.create_task(backend.watch(notes))
        node.fault("nvmlInit", 9)
        backend.reopen()
        for _ in range(2):
            with pytest.raises(DriverAbsent, match="not loaded"):
                await backend.discover()
        probes = await backend.probe_all(devices)
        assert all("no session" in str(verdict) for verdict in probes.values())  # no data, neither clean nor ill
        node.mend()
        assert (await backend.discover()).devices == devices
        node.xid(2, 79)
        await notes.wait_for("fault", devices[2].id, "xid-79")
        watch.cancel()


@pytest.mark.parametrize("late", ["library", "module"])
async def test_a_driver_that_comes_late_is_found_after_seconds_without_new_nodes(
    node: Node, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = node.driver
    if late == "library":
        monkeypatch.setattr(library, "NAME", "libnvidia-ml.so.none")
    else:
        node.fault("nvmlInit", 9)
    async with opened(node) as backend:
        it = Ward(backend)
        task = asyncio.create_task(it.source.run())
        await it.source.first_scan.wait()
        assert it.source.problem
        await it.clock.until_asleep(RETRY_S)
        monkeypatch.undo()
        node.mend()
        await it.clock.advance(RETRY_S)
        await it.until(whole.gpus[0].uuid, Health.HEALTHY)
        assert it.clock.monotonic() == RETRY_S
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
