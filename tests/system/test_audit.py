"""The audit of a running daemon: contradictions are planted in what the kubelet keeps and what processes do."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result
from tests.system.rig import PATIENCE_S, Node, running

from fairlead.app import audit as audit_module
from fairlead.app.questions import itself
from fairlead.cli.commands import cli
from fairlead.kit import processes
from fairlead.kit.hostroot import HostRoot
from fairlead.policy import audit as policy
from fairlead.policy.audit import Kind, Report
from fairlead.standin import checkpoint
from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.testing import Kubelet

FILE = "example.com/file"
CONFIG = """
backends: [{kind: sim, fleet: {devices: [{count: 2, id: "W-{i}", nodes: ["%s/{i}"]}]}}]
rules: [{resource: example.com/file, env: {GIVEN: "{indexes}"}}]
audit: {interval: %s, foreignUse: %s}
"""
HOLDS = "import sys; file = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other at once, and any process table is the host's."""
    for module, name in (
        (audit_module, "CONFIRM_S"),
        (audit_module, "WRITTEN_S"),
        (audit_module, "SETTLE_S"),
        (policy, "SETTLE_S"),
    ):
        monkeypatch.setattr(module, name, 0.02)
    monkeypatch.setattr(processes, "KERNEL_THREAD", HostRoot().read("/proc/2/comm"))


@asynccontextmanager
async def audited(
    kubelet: Kubelet, tmp_path: Path, interval: str = "50ms", foreign: str = "warn"
) -> AsyncIterator[Node]:
    for name in ("0", "1"):
        (tmp_path / name).touch()
    async with running(kubelet, tmp_path, CONFIG % (tmp_path, interval, foreign)) as node:
        await node.ready(FILE, 2)
        yield node


@asynccontextmanager
async def using(path: Path) -> AsyncIterator[int]:
    """A process that has a file open."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", HOLDS, str(path), stdin=pipe, stdout=pipe
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"open\n"
        yield process.pid
    finally:
        await process.communicate(b"")


async def look(node: Node) -> Report:
    """What a person is told: two looks."""
    await node.daemon.questions.audit({}, itself())
    return await node.daemon.questions.audit({}, itself())


def named(node: Node, kind: Kind) -> tuple[int, int]:
    """How often it was reported, and cleared."""
    facts = [fact.kind for fact in node.facts if fact.keys.get("difference") == kind]
    return facts.count("audit-difference"), facts.count("audit-cleared")


async def cleared(node: Node, kind: Kind) -> None:
    await node.until(lambda: node.find("audit-cleared", difference=kind))
    assert named(node, kind) == (1, 1)


async def test_a_process_of_no_pod_is_named_once_and_cleared_once(kubelet: Kubelet, tmp_path: Path):
    async with audited(kubelet, tmp_path) as node:
        async with using(tmp_path / "1") as pid:
            fact = await node.until_fact("audit-difference", difference=Kind.GHOST_USE)
            assert f"process {pid} (python" in fact.keys["seen"]
            assert "fairlead cordon" in fact.keys["cure"]
            assert any("which is in no pod" in problem for problem in node.status().problems)
        await cleared(node, Kind.GHOST_USE)
        assert not node.status().problems


async def test_a_device_in_foreign_use_is_held_back_if_that_is_wanted(kubelet: Kubelet, tmp_path: Path):
    async with audited(kubelet, tmp_path, foreign="hold") as node:
        async with using(tmp_path / "1"):
            await kubelet.wait_for_allocatable(FILE, 1, PATIENCE_S)
            (ill,) = [device for device in node.status().devices if device.health != "healthy"]
            assert ill.cause.startswith("foreign-use: process")
        await kubelet.wait_for_allocatable(FILE, 2, PATIENCE_S)


async def test_foreign_use_may_be_ignored(kubelet: Kubelet, tmp_path: Path):
    async with audited(kubelet, tmp_path, interval="0s", foreign="ignore") as node, using(tmp_path / "1"):
        report = await look(node)
        assert report.differences == ()


async def test_a_program_that_calls_allocate_is_found_out(kubelet: Kubelet, tmp_path: Path):
    async with audited(kubelet, tmp_path) as node:
        (endpoint,) = node.daemon.supervisor.endpoints.values()
        ids = [slot.id for slot in endpoint.resource.slots]
        request = dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=ids[:1])])
        async with grpc.aio.insecure_channel(f"unix:{endpoint.socket}") as channel:
            method = "/v1beta1.DevicePlugin/Allocate"
            await channel.unary_unary(method, dp.AllocateRequest.SerializeToString, dp.AllocateResponse.FromString)(
                request
            )
        fact = await node.until_fact("audit-difference", difference=Kind.ORPHAN_GRANT)
        assert fact.keys["about"] == f"{FILE} {ids[0]}"
        pod = await kubelet.run_pod("train", {"main": {FILE: 2}})
        assert pod.phase == "Running", pod.message
        await cleared(node, Kind.ORPHAN_GRANT)


def plant(kubelet: Kubelet, **changes: str) -> None:
    """Changes what the kubelet keeps: text in its checkpoint."""
    kept = checkpoint.read(kubelet.plugin_dir)
    assert kept is not None
    entries = []
    for entry in kept.entries or ():
        answer = dp.ContainerAllocateResponse.FromString(entry.answer)
        answer.envs.update(changes)
        entries.append(
            checkpoint.Entry(entry.uid, entry.container, entry.resource, entry.by_node, answer.SerializeToString())
        )
    checkpoint.write(kubelet.plugin_dir, checkpoint.Checkpoint(entries, kept.registered))


async def test_an_environment_of_other_devices_is_named_and_cleared(kubelet: Kubelet, tmp_path: Path):
    async with audited(kubelet, tmp_path) as node:
        pod = await kubelet.run_pod("train", {"main": {FILE: 1}})
        right = pod.containers["main"].env["GIVEN"]
        plant(kubelet, GIVEN="7")
        fact = await node.until_fact("audit-difference", difference=Kind.WRONG_ENVIRONMENT)
        assert "default/train/main holds" in fact.keys["seen"]
        assert f"was given GIVEN='7' where these are {right!r}" in fact.keys["seen"]
        plant(kubelet, GIVEN=right)
        await cleared(node, Kind.WRONG_ENVIRONMENT)


async def test_a_pod_without_a_process_is_a_stale_entry(kubelet: Kubelet, tmp_path: Path):
    """The pods of a stand-in have no process."""
    async with audited(kubelet, tmp_path) as node:
        pod = await kubelet.run_pod("train", {"main": {FILE: 1}})
        fact = await node.until_fact("audit-difference", difference=Kind.STALE_ENTRY)
        assert "for default/train/main, and no process of that pod runs" in fact.keys["seen"]
        await kubelet.delete_pod(pod)
        await cleared(node, Kind.STALE_ENTRY)


async def ask(kubelet: Kubelet, *words: str) -> Result:
    socket = f"{kubelet.plugin_dir.parent}/fl.sock"
    return await asyncio.to_thread(CliRunner().invoke, cli, ["audit", "--socket", socket, *words])


async def test_the_command_says_what_differs_and_ends_with_1(kubelet: Kubelet, tmp_path: Path):
    async with audited(kubelet, tmp_path, interval="0s"):
        quiet = await ask(kubelet)
        assert quiet.exit_code == 0, quiet.output
        assert quiet.output.splitlines()[0] == "4 of 5 comparisons: nothing differs; 1 not looked at"
        assert re.search(r"orphan-grant +audit.interval is 0: the daemon does not follow its grants", quiet.output)
        async with using(tmp_path / "0") as pid:
            found = await ask(kubelet)
            assert found.exit_code == 1
            assert "4 of 5 comparisons: 1 difference; 1 not looked at" in found.output
            assert f"\nghost-use\n  seen  process {pid} (python" in found.output
            told = await ask(kubelet, "--json")
            (one,) = json.loads(told.output)["differences"]
            assert (one["kind"], told.exit_code) == ("ghost-use", 1)


async def test_what_cannot_be_seen_is_not_called_well(
    kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(processes, "KERNEL_THREAD", "a name that process 2 does not have")
    async with audited(kubelet, tmp_path) as node:
        (kubelet.plugin_dir / checkpoint.NAME).write_text("{")
        report = await look(node)
        lacks = {each.kind: each.lacks for each in report.not_looked_at}
        assert lacks.keys() == set(Kind) - {Kind.DOUBLE_GRANT}
        assert "hostPID: true" in lacks[Kind.GHOST_USE]
        assert "cannot be read" in lacks[Kind.ORPHAN_GRANT]
