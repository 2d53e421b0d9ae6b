"""A daemon that starts again offers what it knew of the same boot, while a backend is slow to answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.system.rig import GPU, PATIENCE_S, SIM, Node, running

from fairlead.engine.source import Source
from fairlead.kit.clock import SystemClock
from fairlead.library import make_daemon, plugin
from fairlead.model.device import Device
from fairlead.model.errors import BackendError
from fairlead.model.inventory import Findings
from fairlead.testing import Kubelet

REQUIRED = SIM.replace("backends:", "scan: {required: true}\nbackends:")


class Slow:
    """Scans wait, once they are held; then they find what the sim has, and `changed` makes of it."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.changed: list[Device] | Exception | None = None

    def hold(self) -> None:
        self.go_on.clear()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    made, scan = Slow(), Source.scan

    async def slowly(self: Source) -> None:
        await made.go_on.wait()
        if made.changed is not None:

            async def discover() -> Findings:
                if isinstance(made.changed, Exception):
                    raise made.changed
                return Findings(tuple(made.changed or ()))

            monkeypatch.setattr(self.backend, "discover", discover)
        await scan(self)

    monkeypatch.setattr(Source, "scan", slowly)
    return made


async def start_again(node: Node, slow: Slow) -> None:
    await node.ready()
    await node.stop()
    await node.kubelet.wait_for_allocatable(GPU, 0)
    slow.hold()
    node.start()


async def until_allocate(kubelet: Kubelet) -> None:
    await kubelet.wait_for(lambda: any(call.method == "Allocate" for call in kubelet.calls))


async def test_devices_are_offered_before_the_scan_and_given_after_it(kubelet: Kubelet, tmp_path: Path, slow: Slow):
    async with running(kubelet, tmp_path) as node:
        await start_again(node, slow)
        await kubelet.wait_for_allocatable(GPU, 8)
        assert node.find("inventory-recalled", devices=8)
        pod = asyncio.create_task(kubelet.run_pod("p", {"main": {GPU: 8}}))
        await until_allocate(kubelet)
        assert not pod.done(), "no scan has confirmed the devices"
        slow.go_on.set()
        assert (await pod).phase == "Running"


@pytest.mark.parametrize("what", ["gone", "changed"])
async def test_a_pod_does_not_get_a_device_that_is_gone_or_another(
    kubelet: Kubelet, tmp_path: Path, slow: Slow, what: str
):
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        last, *others = reversed(node.daemon.engine.inventory.devices)
        await start_again(node, slow)
        slow.changed = others if what == "gone" else [*others, replace(last, memory_bytes=2**30)]
        await kubelet.wait_for_allocatable(GPU, 8)
        pod = asyncio.create_task(kubelet.run_pod("p", {"main": {GPU: 8}}))
        await until_allocate(kubelet)
        slow.go_on.set()
        refused = await pod
        assert refused.phase == "Failed"
        assert last.id in refused.message
        await kubelet.wait_for_allocatable(GPU, len(slow.changed))
        assert (await kubelet.run_pod("q", {"main": {GPU: len(slow.changed)}})).phase == "Running"


async def test_a_daemon_that_must_find_its_devices_still_ends_when_it_does_not(
    kubelet: Kubelet, tmp_path: Path, slow: Slow
):
    async with running(kubelet, tmp_path, REQUIRED) as node:
        await start_again(node, slow)
        await kubelet.wait_for_allocatable(GPU, 8)
        slow.changed = OSError("no driver")
        slow.go_on.set()
        with pytest.raises(BackendError, match="backend sim: OSError: no driver"):
            await node.ends()
        slow.changed = None
        slow.hold()
        node.facts.clear()
        node.start()
        await node.until_fact("started")
        assert not node.find("inventory-recalled"), "a scan has shown that it does not hold"
        slow.go_on.set()
        await node.ready()


async def test_a_daemon_that_dies_in_its_first_scan_offers_nothing_early_the_next_time(
    kubelet: Kubelet, tmp_path: Path, slow: Slow
):
    async with running(kubelet, tmp_path) as node:
        await start_again(node, slow)
        await kubelet.wait_for_allocatable(GPU, 8)
        await node.stop()
        node.facts.clear()
        node.start()
        await node.until_fact("started")
        assert not node.find("inventory-recalled")
        slow.go_on.set()
        await node.ready()


async def test_a_device_that_failed_just_before_keeps_them_all_from_being_offered_early(
    kubelet: Kubelet, tmp_path: Path, slow: Slow
):
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        await node.steer(do="fail", device="3", xid=79)
        await kubelet.wait_for_allocatable(GPU, 7)
        await node.stop()
        slow.hold()
        node.start()
        refused = await node.until_fact("inventory-not-recalled", backend="sim")
        assert "not well" in refused.keys["reason"]
        slow.go_on.set()


async def test_where_it_is_switched_off_nothing_is_remembered(kubelet: Kubelet, tmp_path: Path, slow: Slow):
    async with running(kubelet, tmp_path, SIM + "scan: {remember: false}\n") as node:
        await start_again(node, slow)
        await node.until_fact("started")
        assert not list(kubelet.plugin_dir.glob(".*.inventory"))
        assert not node.find("inventory-recalled")
        slow.go_on.set()
        await node.ready()


async def test_what_a_program_of_your_own_finds_is_not_remembered(kubelet: Kubelet):
    """Another version of it may name its devices otherwise, and which version it is cannot be known."""

    @plugin("example.com/thing")
    def things() -> list[Device]:
        return [Device("a")]

    daemon = make_daemon([things], plugin_dir=str(kubelet.plugin_dir), clock=SystemClock())
    task = asyncio.create_task(daemon.run())
    await kubelet.wait_for_allocatable("example.com/thing", 1)
    assert not list(kubelet.plugin_dir.glob(".*.inventory"))
    daemon.stop()
    await asyncio.wait_for(task, PATIENCE_S)
