"""Several backends in one daemon: whatever one of them does, the others' devices are offered, watched and given."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.system import hostile
from tests.system.process import program, write_config
from tests.system.rig import PATIENCE_S, Node, running

from fairlead.app import daemon as daemon_module
from fairlead.backends import registry
from fairlead.engine import closing
from fairlead.kit.clock import SystemClock
from fairlead.model.errors import BackendError
from fairlead.model.ports import Backend
from fairlead.testing import Kubelet

SIM, FILE, BAD = "example.com/sim", "example.com/file", "example.com/bad"
ALLOCATE_S = 10.0  # the kubelet waits without a deadline; a backend that hangs would hang it for as long
RULES = [
    {"match": {"backend": name}, "resource": resource}
    for name, resource in (("sim", SIM), ("files", FILE), ("bad", BAD))
]
HEALTH = {"probeInterval": "20ms", "hold": "20ms", "probation": "20ms", "cleanProbes": 1, "probeDeadline": "20s"}
TWO = {"devices": [{"count": 2, "vendor": "acme"}]}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    return tmp_path


def text_of(*names: str, **more: Any) -> str:
    """A configuration of given backends."""
    config = {"backends": [{"kind": "sim", "name": name} for name in names], "rules": RULES, "health": HEALTH, **more}
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in config.items())  # JSON is YAML


@asynccontextmanager
async def beside(kubelet: Kubelet, root: Path, files: Path, bad: Any) -> AsyncIterator[Node]:
    """Two backends that work, and one that does not."""
    clock = SystemClock()
    given: Mapping[str, Backend] = {
        "bad": bad,
        "sim": registry.open("sim", {"fleet": TWO}, clock),
        "files": registry.open("paths", {"devices": [{"paths": [f"{files}/[ab]"], "allow": ["file"]}]}, clock),
    }
    async with running(kubelet, root, text_of(*given), start=False) as node:
        node.start(given)
        yield node


async def others_serve(node: Node, files: Path) -> None:
    """Registered, given to pods in time, and watched."""
    kubelet = node.kubelet
    for resource in (SIM, FILE):
        await kubelet.wait_for_allocatable(resource, 2, PATIENCE_S)
    pod = await kubelet.run_pod("train", {"main": {SIM: 1, FILE: 1}})
    assert pod.phase == "Running", pod.message
    calls = [call for call in kubelet.calls if call.method in {"Allocate", "GetPreferredAllocation"}]
    assert max(call.seconds or 0.0 for call in calls) < ALLOCATE_S
    await node.steer(do="fail", device="1", xid=79)
    await kubelet.wait_for_allocatable(SIM, 1, PATIENCE_S)
    (files / "b").unlink()
    await kubelet.wait_for_allocatable(FILE, 1, PATIENCE_S)
    await kubelet.delete_pod(pod)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_module, "PATIENCE_S", 0.05)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("how", [*hostile.SCANS])
async def test_a_backend_whose_scans_fail_disturbs_no_other(
    how: str, kubelet: Kubelet, kubelet_root: Path, files: Path
):
    make, said = hostile.SCANS[how]
    async with beside(kubelet, kubelet_root, files, make()) as node:
        await others_serve(node, files)
        assert_named(node, said)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("how", [*hostile.REPORTS])
async def test_a_backend_whose_reports_fail_disturbs_no_other(
    how: str, kubelet: Kubelet, kubelet_root: Path, files: Path
):
    make, said = hostile.REPORTS[how]
    async with beside(kubelet, kubelet_root, files, make()) as node:
        await others_serve(node, files)
        assert_named(node, said)
        kept = node.daemon.journal.tail()
        assert any(fact.keys.get("resource") == SIM for fact in kept), "a flood has washed out what others did"
        assert sum(len(str(fact.keys)) for fact in kept) < 10_000_000


def assert_named(node: Node, said: str) -> None:
    """In the status: the bad backend, and no other."""
    problems = [problem for problem in node.status().problems if problem.startswith("backend ")]
    assert all(problem.startswith("backend bad: ") for problem in problems), problems
    assert any(said in problem for problem in problems) if said else not problems, problems
    assert sum(map(len, problems)) < 1_000_000


@pytest.mark.parametrize("how", [*hostile.EDITS])
async def test_edits_that_fail_refuse_their_own_pod(how: str, kubelet: Kubelet, kubelet_root: Path, files: Path):
    make, said = hostile.EDITS[how]
    async with beside(kubelet, kubelet_root, files, make()) as node:
        await kubelet.wait_for_allocatable(BAD, 1, PATIENCE_S)
        pod = await kubelet.run_pod("bad", {"main": {BAD: 1}})
        assert pod.phase == "Failed"
        assert said in pod.message
        assert said in (await node.until_fact("allocate-refused")).keys["reason"]
        assert not node.find("call-failed")
        await others_serve(node, files)


@pytest.mark.parametrize("how", [*hostile.CLOSES])
async def test_a_backend_that_does_not_close_does_not_keep_the_daemon(
    how: str, kubelet: Kubelet, kubelet_root: Path, files: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(closing, "CLOSE_S", 0.05)
    async with beside(kubelet, kubelet_root, files, hostile.CLOSES[how]()) as node:
        await kubelet.wait_for_allocatable(BAD, 1, PATIENCE_S)
        await node.stop()
        assert (await node.until_fact("close-failed")).keys["backend"] == "bad"


async def test_a_backend_that_cannot_be_cancelled_does_not_keep_the_daemon(
    kubelet: Kubelet, kubelet_root: Path, files: Path, hasty: None
):
    deaf = hostile.Deaf()
    async with beside(kubelet, kubelet_root, files, deaf) as node:
        await others_serve(node, files)
        await node.stop()
        deaf.let_go.set()


DEAF = """
import asyncio

class Deaf:
    name = "deaf"

    async def discover(self):
        asyncio.create_task(self.hang())
        await self.hang()

    async def hang(self):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

def open_backend(options, clock):
    return Deaf()
"""


async def test_a_process_ends_though_tasks_of_a_backend_cannot_be_cancelled(kubelet: Kubelet, kubelet_root: Path):
    (kubelet_root / "deaf-1.dist-info").mkdir()
    (kubelet_root / "deaf-1.dist-info/METADATA").write_text("Name: deaf\nVersion: 1\n")
    (kubelet_root / "deaf-1.dist-info/entry_points.txt").write_text("[fairlead.backends]\ndeaf = deaf:open_backend\n")
    (kubelet_root / "deaf.py").write_text(DEAF)
    config = write_config(kubelet_root, kubelet, f"backends: [{{kind: deaf}}]\nrules: [{{resource: {BAD}}}]\n")
    async with program("-m", "fairlead", "run", "--config", config, env={"PYTHONPATH": str(kubelet_root)}) as daemon:
        await daemon.says("started")
        daemon.send(signal.SIGTERM)
        assert await daemon.ends() == 0
        assert not any("Traceback" in line for line in daemon.lines)


async def test_one_that_is_late_joins_when_it_answers(kubelet: Kubelet, kubelet_root: Path, files: Path, hasty: None):
    late = hostile.Quiet()
    answers, discover = asyncio.Event(), late.discover

    async def slow() -> Any:
        await answers.wait()
        return await discover()

    late.discover = slow  # type: ignore[method-assign]  # a driver that takes its time
    async with beside(kubelet, kubelet_root, files, late) as node:
        await kubelet.wait_for_allocatable(SIM, 2, PATIENCE_S)
        assert (await node.until_fact("backend-silent")).keys["backend"] == "bad"
        assert BAD not in kubelet.node().capacity
        answers.set()
        await kubelet.wait_for_allocatable(BAD, 1, PATIENCE_S)
        assert_named(node, "")


async def test_others_do_not_wait_for_long(kubelet: Kubelet, kubelet_root: Path, files: Path):
    """Unless one that must answer is silent: `scan.required`."""
    assert daemon_module.PATIENCE_S <= 5
    given = {"bad": hostile.Hangs(), "sim": registry.open("sim", {"fleet": TWO}, SystemClock())}
    required = text_of(*given, scan={"required": True, "deadline": "100ms"})
    async with running(kubelet, kubelet_root, required, start=False) as node:
        node.start(given)
        ended = node.kill()
        assert ended is not None
        with pytest.raises(BackendError, match=r"backend bad: the scan has not answered in 0\.1 s"):
            await asyncio.wait_for(ended, PATIENCE_S)
        assert not kubelet.node().capacity
