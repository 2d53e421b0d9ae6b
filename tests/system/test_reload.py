"""Changing the configuration of a running daemon: the good is applied by difference, the bad changes nothing."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from tests.clock import FakeClock
from tests.system.rig import GPU, PATIENCE_S, SIM, Node, ask_status, running

from fairlead.app.reload import FileWatch
from fairlead.config.load import Loaded
from fairlead.model.device import Device
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId
from fairlead.observe.control import Control
from fairlead.testing import Kubelet

SHARED = SIM.replace("resource: nvidia.com/gpu", "{resource: nvidia.com/gpu, replicas: 2}")
TOO_MANY = SHARED.replace("replicas: 2", "replicas: 20000")
SPLIT = SIM.replace(
    "  - resource: nvidia.com/gpu",
    "  - {match: {index: [0, 1]}, resource: example.com/first}\n  - resource: nvidia.com/gpu",
)


async def test_a_bad_file_keeps_the_old_configuration_and_is_reported(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        node.write(SIM.replace("resource: nvidia.com/gpu", "resource: nonsense"))
        await node.reload()
        fact = await node.until_fact("problem", topic="config")
        assert "nonsense" in fact.keys["reason"]
        assert kubelet.node().allocatable == {GPU: 8}
        assert any("nonsense" in text for text in await _problems(node))
        node.write(SIM)
        await node.reload()
        assert not await _problems(node)


async def test_a_reload_before_the_sources_run_is_made_up_for(
    kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    """A foreign program on the status socket's path may keep the start waiting."""
    opening, may_open, start = asyncio.Event(), asyncio.Event(), Control.start

    async def slow(control: Control) -> None:
        opening.set()
        await may_open.wait()
        await start(control)

    monkeypatch.setattr(Control, "start", slow)
    async with running(kubelet, kubelet_root) as node:
        await opening.wait()
        node.write(SHARED.replace("h100x8", "mi210x4"))
        node.daemon.reload(fresh=True)
        if (task := node.daemon._reloads.task) is not None:
            await task
        may_open.set()
        await node.ready(count=8)
        await node.until_fact("config-applied")
        assert len(node.daemon.engine.inventory.devices) == 4


async def test_pods_start_while_a_file_is_being_read(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, start=False) as node:
        reading, may_end = threading.Event(), threading.Event()
        load = node.load

        def slow() -> Loaded:
            if reading.is_set() or not hasattr(node, "daemon"):
                return load()  # the first of all, and those after the slow one
            reading.set()
            may_end.wait(PATIENCE_S)
            return load()

        node.load = slow  # type: ignore[method-assign]  # a file system that does not answer
        node.start()
        await node.ready()
        node.write(SHARED)
        node.daemon.reload()
        await asyncio.to_thread(reading.wait, PATIENCE_S)
        pod = await kubelet.run_pod("train", {"main": {GPU: 1}})
        assert pod.phase == "Running"
        assert kubelet.node().allocatable == {GPU: 8}
        may_end.set()
        await node.until_fact("config-applied")
        await kubelet.wait_for_allocatable(GPU, 14)


@pytest.mark.parametrize("kind", ["FIFO", "laughs", "brackets", "large", "directory"])
async def test_no_file_can_stop_a_daemon(kind: str, kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        node.config.unlink()
        match kind:
            case "FIFO":
                os.mkfifo(node.config)
            case "directory":
                node.config.mkdir()
            case "large":
                node.config.write_bytes(b"#" * 50_000_000)
            case "laughs":
                wide = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
                node.config.write_text(f"a0: &a0 [{', '.join(['lol'] * 9)}]\n{wide}")
            case _:
                node.config.write_text("[" * 60_000)
        node.daemon.reload()
        fact = await node.until_fact("problem", topic="config")
        assert str(node.config) in fact.keys["reason"]
        assert (await kubelet.run_pod("train", {"main": {GPU: 8}})).phase == "Running"


async def test_a_bad_backend_keeps_the_old_one(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        node.write(SIM.replace("fleet: h100x8", "fleet: h100x9"))
        await node.reload()
        fact = await node.until_fact("problem", topic="config")
        assert "h100x8" in fact.keys["reason"]  # did you mean
        assert kubelet.node().allocatable == {GPU: 8}


async def test_more_replicas_arrive_without_a_new_registration(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        registered = _registrations(kubelet)
        node.write(SHARED)
        await node.reload()
        await kubelet.wait_for_allocatable(GPU, 16)
        assert _registrations(kubelet) == registered


async def test_slots_that_a_pod_may_hold_stay_listed_as_unhealthy(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, SHARED) as node:
        await node.ready(count=16)
        pod = await kubelet.run_pod("train", {"main": {GPU: 2}})
        held = {slot.partition("::")[0] for slot in pod.containers["main"].devices[GPU]}
        node.write(SIM)
        await node.reload()
        await kubelet.wait_for_allocatable(GPU, 8 - len(held))
        for slot in pod.containers["main"].devices[GPU]:
            assert kubelet.devices(GPU)[slot] == "Unhealthy"
        assert pod.phase == "Running"


async def test_a_device_moves_to_another_resource_and_the_first_keeps_serving(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        node.write(SPLIT)
        await node.reload()
        await node.ready("example.com/first", 2)
        await kubelet.wait_for_allocatable(GPU, 6)
        node.write(SIM)
        await node.reload()
        await node.until_fact("resource-removed", resource="example.com/first")
        await node.ready(GPU, 8)


async def test_a_new_fleet_replaces_the_old_one(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        node.write(SIM.replace("fleet: h100x8", "fleet: pcie16"))
        await node.reload()
        await kubelet.wait_for_allocatable(GPU, 16)


async def test_a_new_configuration_is_no_cure(kubelet: Kubelet, kubelet_root: Path):
    """Neither a new pace nor new options of the backend make a failed device healthy."""
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        await node.steer(do="fail", device="3", xid=79)
        await kubelet.wait_for_allocatable(GPU, 7)
        node.write(SIM.replace("probation: 20ms", "probation: 30ms"))
        await node.reload()
        await node.until_fact("config-applied")
        first = node.daemon.engine.sources.live["sim"]
        assert (await ask_status(node.daemon)).resources[0].healthy == 7
        node.write(SIM.replace("fleet: h100x8", "fleet: h100x8\n    speed: 2"))
        await node.reload()
        assert node.daemon.engine.sources.live["sim"] is not first
        await node.daemon.engine.sources.live["sim"].first_scan.wait()
        assert (await ask_status(node.daemon)).resources[0].healthy == 7
        assert kubelet.node().allocatable == {GPU: 7}


async def test_while_a_new_backend_is_slow_to_scan_the_old_devices_stay(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        slow = "fleet: h100x8\n    timeline: [{at: 0s, do: scan-slow, takes: 60s}]"
        node.write(SIM.replace("fleet: h100x8", slow))
        await node.reload()
        await node.until_fact("config-applied")
        node.daemon.settle()
        assert kubelet.node().allocatable == {GPU: 8}


async def test_a_renamed_backend_keeps_its_devices_and_what_was_wrong_with_them(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        await node.steer(do="fail", device="3", xid=79)
        await kubelet.wait_for_allocatable(GPU, 7)
        lists = published(node)
        node.write(SIM.replace("- kind: sim", "- kind: sim\n    name: gpus"))
        await node.reload()
        assert node.daemon.engine.sources._handover is not None
        await node.daemon.engine.sources._handover
        assert set(node.daemon.engine.sources.speaking) == {"gpus"}
        node.daemon.settle()
        assert kubelet.node().allocatable == {GPU: 7}
        assert published(node) == lists  # the kubelet heard nothing of it


async def test_a_device_that_a_pod_holds_is_not_given_away_under_another_name(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        pod = await kubelet.run_pod("train", {"main": {GPU: 1}})
        (held,) = pod.containers["main"].devices[GPU]
        index = node.ids().index(held)
        node.write(
            SIM.replace(
                "  - resource: nvidia.com/gpu",
                f"  - {{match: {{index: {index}}}, resource: example.com/first}}\n  - resource: nvidia.com/gpu",
            )
        )
        await node.reload()
        await kubelet.wait_for(lambda: kubelet.node().capacity.get("example.com/first") == 1)
        assert kubelet.node().allocatable["example.com/first"] == 0
        await kubelet.delete_pod(pod)
        await node.daemon.read_holders()
        node.daemon.settle()
        await kubelet.wait_for_allocatable("example.com/first", 1)


async def test_a_device_that_a_pod_holds_is_not_cut_up_beside_it(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        await kubelet.run_pod("train", {"main": {GPU: 1}})
        node.write(SHARED)
        await node.reload()
        await kubelet.wait_for_allocatable(GPU, 14)  # two slots each of the seven others


async def test_a_resource_that_pods_hold_is_served_until_they_end(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, SPLIT) as node:
        await node.ready("example.com/first", 2)
        pod = await kubelet.run_pod("train", {"main": {"example.com/first": 1}})
        node.write(SIM)
        await node.reload()
        fact = await node.until_fact("problem", topic="rules")
        assert "pods hold 1 of it" in fact.keys["reason"]
        assert kubelet.node().capacity["example.com/first"] == 2
        await kubelet.delete_pod(pod)
        await node.daemon.read_holders()
        node.daemon.settle()
        await node.until_fact("resource-removed", resource="example.com/first")


async def test_a_needed_restart_is_not_forgotten_by_the_next_change(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        places = f"kubelet: {{directory: /elsewhere, podResources: {kubelet.podresources_socket}}}\n"
        node.write(f"{SIM}\n{places}")
        await node.reload()
        node.write(f"{SHARED}\n{places}")
        await node.reload()
        assert any("kubelet.directory" in problem for problem in await _problems(node))


async def test_settings_that_need_a_restart_are_named(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        node.write(f"{SIM}\nkubelet: {{directory: /elsewhere, podResources: {kubelet.podresources_socket}}}\n")
        await node.reload()
        fact = await node.until_fact("problem", topic="restart")
        assert "kubelet.directory" in fact.keys["reason"]
        assert kubelet.node().allocatable == {GPU: 8}


async def test_a_changed_file_is_noticed_also_through_a_swapped_link(tmp_path: Path):
    """The way a ConfigMap volume changes: `..data` is a link that is renamed over."""
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "fairlead.yaml").write_text(version)
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "fairlead.yaml").symlink_to("..data/fairlead.yaml")
    clock, seen = FakeClock(), []
    watch = asyncio.create_task(
        FileWatch(tmp_path / "fairlead.yaml", clock).run(lambda: seen.append(1), lambda _key, _text: None)
    )
    await clock.advance(10)
    assert not seen
    (tmp_path / "..new").symlink_to("two")
    (tmp_path / "..new").replace(tmp_path / "..data")
    await clock.advance(2)
    assert seen == [1]
    (tmp_path / "..data").unlink()  # the moment between two versions
    await clock.advance(2)
    assert seen == [1]
    watch.cancel()


async def _problems(node: Node) -> list[str]:
    return list((await ask_status(node.daemon)).problems)


def _registrations(kubelet: Kubelet) -> int:
    return sum(call.method == "Register" for call in kubelet.calls)


async def test_a_reload_during_the_first_scan_offers_nothing_before_every_backend_has_spoken(
    kubelet: Kubelet, kubelet_root: Path
):
    quick, slow = _Late("a"), _Late("b")
    quick.answers.set()
    two = "  - {kind: sim, name: quick, fleet: h100x8}\n  - {kind: sim, name: slow, fleet: h100x8}\n"
    one = "  - kind: sim\n    fleet: h100x8\n"
    async with running(kubelet, kubelet_root, SIM.replace(one, two), start=False) as node:
        node.start({"quick": quick, "slow": slow})
        await node.until_fact("device-found", device="a")
        node.write(SHARED.replace(one, two))
        await node.reload()
        (resettling,) = [task for task in asyncio.all_tasks() if task.get_name() == "resettle"]
        await asyncio.wait_for(resettling, PATIENCE_S)
        assert not node.daemon.supervisor.endpoints
        slow.answers.set()
        await node.ready(count=4)


@pytest.mark.parametrize("before", [SIM, TOO_MANY], ids=["after a list that was sent", "from the start"])
async def test_a_list_that_was_refused_leaves_nothing_behind(kubelet: Kubelet, kubelet_root: Path, before: str):
    """No pod holds slots that the kubelet never heard of: they do not make the next list too large as well."""
    async with running(kubelet, kubelet_root, before) as node:
        if before == SIM:
            await node.ready()
            node.write(TOO_MANY)
            await node.reload()
        await node.until_fact("list-refused")
        node.write(SHARED)
        await node.reload()
        await kubelet.wait_for_allocatable(GPU, 16, PATIENCE_S)
        assert not await _problems(node)


class _Late:
    name = "late"

    def __init__(self, device: str) -> None:
        self.device = Device(DeviceId(device))
        self.answers = asyncio.Event()

    async def discover(self) -> Findings:
        await self.answers.wait()
        return Findings((self.device,))


async def test_a_file_that_changes_while_the_daemon_starts_is_seen(tmp_path: Path):
    file, clock, seen = tmp_path / "fairlead.yaml", FakeClock(), list[int]()
    file.write_text("a")
    watch = FileWatch(file, clock)
    file.write_text("changed")  # after it was read, before anybody watches
    watching = asyncio.create_task(watch.run(lambda: seen.append(1), lambda _key, _text: None))
    await clock.advance(2)
    assert seen == [1]
    watching.cancel()


def published(node: Node) -> int:
    return sum(fact.kind == "published" for fact in node.daemon.journal.tail())
