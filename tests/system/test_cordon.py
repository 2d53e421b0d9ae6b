"""A cordoned device is given to no new pod, over restarts, until it is uncordoned or its time is over."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.system.rig import GPU, Node, ask_status, running

from fairlead.app.questions import itself
from fairlead.cli import show
from fairlead.cli.commands import cli
from fairlead.kit.clock import SystemClock
from fairlead.model.errors import UsageError
from fairlead.observe.explanation import Explanation
from fairlead.testing import Kubelet

MIXED = """
backends: [{kind: sim, fleet: mixed}]
rules: [{match: {index: "3:*"}, resource: a.example/part}, {resource: a.example/rest}]
"""


async def cordon(node: Node, device: str, **keys: Any) -> str:
    asked = {"device": device, "reason": "fan is replaced", **keys}
    return str(await node.daemon.questions.cordon(asked, itself()))


async def uncordon(node: Node, device: str) -> str:
    return str(await node.daemon.questions.uncordon({"device": device}, itself()))


async def explain(node: Node) -> Explanation:
    made = await node.daemon.questions.explain({"resource": GPU}, itself())
    return made()


async def test_a_cordon_outlasts_the_daemon_and_the_kubelet_and_ends_by_an_order(kubelet: Kubelet, tmp_path: Path):
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        holder = await kubelet.run_pod("holder", {"main": {GPU: 8}})
        said = await cordon(node, "3")
        await kubelet.wait_for_allocatable(GPU, 7)
        device = node.ids()[3]
        assert said == f"{device} is cordoned: fan is replaced. Pods that hold it keep it"
        assert holder.phase == "Running"
        assert (await kubelet.restart_container(holder, "main")).state == "running", "a running pod is left alone"

        await node.stop()
        await kubelet.wait_for_allocatable(GPU, 0)
        node.start()
        await kubelet.wait_for_allocatable(GPU, 7)
        await node.until_fact("cordons-kept", devices=[device])
        await kubelet.restart(reboot=True)
        await kubelet.wait_for_allocatable(GPU, 7)
        await kubelet.delete_pod(holder)
        pod = await kubelet.run_pod("next", {"main": {GPU: 7}})
        assert pod.phase == "Running", pod.message
        assert device not in {slot for slots in pod.containers["main"].devices.values() for slot in slots}
        refused = await kubelet.run_pod("one-more", {"main": {GPU: 1}})
        assert refused.phase == "Failed"

        assert await uncordon(node, device) == f"{device} is no longer cordoned, and is healthy"
        await kubelet.wait_for_allocatable(GPU, 8)
        await node.until_fact("uncordoned", device=device, reason="ordered")


async def test_a_cordon_ends_with_its_time(kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        await cordon(node, "3", for_s=7200)
        await cordon(node, "4", for_s=0.2)
        await node.until_fact("uncordoned", device=node.ids()[4], reason="its time is over")
        await kubelet.wait_for_allocatable(GPU, 7)

        await node.stop()
        await kubelet.wait_for_allocatable(GPU, 0)
        monkeypatch.setattr(SystemClock, "now", lambda _self: time.time() + 7201)
        node.start()
        await kubelet.wait_for_allocatable(GPU, 8)


async def test_a_cordon_is_shown_wherever_health_is(kubelet: Kubelet, tmp_path: Path):
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        await cordon(node, "3", for_s=7200)
        await kubelet.wait_for_allocatable(GPU, 7)
        device = node.ids()[3]
        status = await ask_status(node.daemon)
        row = status.devices[3]
        assert (row.health, row.cause.partition(" (until")[0]) == ("unhealthy", "cordoned: fan is replaced")
        assert [(each.device, each.reason) for each in status.cordons] == [(device, "fan is replaced")]
        assert not status.healthy
        drawn = show.status(status)
        assert drawn.count("fan is replaced") == 1
        assert "device 3: unhealthy for" in drawn
        left_out = {each.slot: each.why for each in (await explain(node)).left_out}
        assert left_out[device].startswith("unhealthy: cordoned: fan is replaced (until ")


async def test_a_fault_of_a_cordoned_device_is_shown_and_both_have_to_end(kubelet: Kubelet, tmp_path: Path):
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        await cordon(node, "3")
        await node.steer(do="fail", device="3", xid=79)
        await node.until_fact("unhealthy", device=node.ids()[3])
        await node.daemon.questions.status({}, itself())
        drawn = show.status(await ask_status(node.daemon))
        assert "xid-79" in drawn
        assert "cordoned for" in drawn
        assert "xid-79" in await uncordon(node, "3")
        await cordon(node, "3")
        await node.steer(do="clear", device="3")
        await node.daemon.questions.clear({"device": "3"}, itself())
        await node.until_fact("healthy", device=node.ids()[3])
        assert node.status().devices[3].cause == "cordoned: fan is replaced", "clear ends faults, and no cordon"
        assert kubelet.node().allocatable[GPU] == 7


async def test_a_device_is_cordoned_with_its_partitions(kubelet: Kubelet, tmp_path: Path):
    async with running(kubelet, tmp_path, MIXED) as node:
        await node.until_fact("streaming", resource="a.example/part")
        devices = node.daemon.engine.inventory.devices
        (parent,) = {device.parent for device in devices if device.parent}
        parts = sum(device.parent is not None for device in devices)
        await kubelet.wait_for_allocatable("a.example/part", parts)
        await cordon(node, "3")
        await kubelet.wait_for_allocatable("a.example/part", 0)
        status = await ask_status(node.daemon)
        assert [each.device for each in status.cordons] == [parent]
        assert show.status(status).count("fan is replaced") == parts
        await uncordon(node, "3")
        await kubelet.wait_for_allocatable("a.example/part", parts)


async def test_a_device_that_is_gone_stays_cordoned(kubelet: Kubelet, tmp_path: Path):
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        device = node.ids()[3]
        await cordon(node, "3")
        await node.steer(do="unplug", device="3")
        await node.until_fact("device-gone", device=device)
        assert f"device {device}: cordoned for" in show.status(await ask_status(node.daemon))
        assert await uncordon(node, device) == f"{device} is no longer cordoned"


async def test_names_and_reasons_from_outside_are_checked(kubelet: Kubelet, tmp_path: Path):
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        for device, keys, said in (
            ("33", {}, "no device '33'"),
            ("", {}, "no device ''"),
            ("GPU-", {}, "could be any of"),
            ("3", {"reason": ""}, "no reason"),
            ("3", {"reason": "a\nb"}, "one line"),
            ("3", {"for_s": -1}, "--for 2h"),
        ):
            with pytest.raises(UsageError, match=said):
                await cordon(node, device, **keys)
        with pytest.raises(UsageError, match="no device is cordoned"):
            await uncordon(node, "3")
        await cordon(node, "3")
        with pytest.raises(UsageError, match="no cordoned device '4'"):
            await uncordon(node, "4")
        names = [path.name for path in kubelet.plugin_dir.iterdir() if "cordons" in path.name]
        assert names == [".fairlead.cordons"], "the kubelet takes files without a dot for checkpoints"


async def test_a_damaged_file_is_told_and_devices_are_offered(kubelet: Kubelet, tmp_path: Path):
    async with running(kubelet, tmp_path, start=False) as node:
        await asyncio.to_thread((kubelet.plugin_dir / ".fairlead.cordons").write_bytes, b'{"version":1,"cord')
        node.start()
        await node.ready()
        assert any(".fairlead.cordons: it holds something else" in problem for problem in node.status().problems)


async def run(*args: str) -> Result:
    """The command, on a thread: the daemon of this process answers it."""
    return await asyncio.to_thread(CliRunner().invoke, cli, list(args))


async def test_the_commands(kubelet: Kubelet, tmp_path: Path):
    socket = ("--socket", f"{kubelet.plugin_dir.parent}/fl.sock")
    silent = await run("cordon", "3", "--reason", "fan", *socket)
    assert silent.exit_code == 5
    assert "Is `fairlead run` running?" in silent.stderr
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        assert (await run("cordon", *socket)).stdout == "no device is cordoned\n"
        for args, said in (
            (("3",), "--reason TEXT"),
            (("3", "--reason", " "), "--reason TEXT"),
            (("--reason", "fan"), "which device?"),
            (("3", "--reason", "fan", "--for", "soon"), "--for 'soon'"),
            (("3", "--reason", "fan", "--for", "0s"), "--for 2h"),
            (("33", "--reason", "fan"), "no device '33'"),
        ):
            refused = await run("cordon", *args, *socket)
            assert (refused.exit_code, said in refused.stderr) == (2, True), refused.stderr
        ordered = await run("cordon", "3", "--reason", "fan is replaced", "--for", "2h", *socket)
        assert ordered.exit_code == 0
        assert "is cordoned: fan is replaced (until " in ordered.stdout
        await kubelet.wait_for_allocatable(GPU, 7)
        assert "left  fan is replaced" in (await run("cordon", *socket)).stdout
        assert "is healthy" in (await run("uncordon", "3", *socket)).stdout
        await kubelet.wait_for_allocatable(GPU, 8)
