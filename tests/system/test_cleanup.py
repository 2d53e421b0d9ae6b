"""A device is cleaned between containers: the command hangs, fails, comes late, and never runs under another tenant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.system.rig import PATIENCE_S, Node, running

from fairlead.app.questions import itself
from fairlead.config.load import load
from fairlead.engine import cleanup
from fairlead.model.errors import ConfigError
from fairlead.policy import cleanup as policy
from fairlead.testing import Kubelet

GPU = "example.com/gpu"
CONFIG = """
backends: [{kind: sim, fleet: {devices: [{count: 1, id: "W-{i}"}]}}]
rules: [{resource: example.com/gpu, replicas: %d, cleanup: {command: [%s, "{id}"], deadline: %s}}]
"""
# Does what the file `how` says, and writes down that it ran, on what.
SCRUB = """#!/bin/sh
cd "%s"
echo "$1 $FAIRLEAD_DEVICE $FAIRLEAD_RESOURCE" >> ran
. ./how
"""


class Scrub:
    def __init__(self, root: Path) -> None:
        self.path, self._ran, self._how = root / "scrub", root / "ran", root / "how"
        self.path.write_text(SCRUB % root)
        self.path.chmod(0o755)
        self.does("exit 0")

    def does(self, shell: str) -> None:
        self._how.write_text(shell + "\n")

    @property
    def ran(self) -> list[str]:
        return self._ran.read_text().splitlines() if self._ran.exists() else []


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "LOOK_S", 0.02)
    monkeypatch.setattr(policy, "SETTLE_S", 0.2)


@pytest.fixture
def scrub(tmp_path: Path) -> Scrub:
    return Scrub(tmp_path)


@asynccontextmanager
async def cleaning(
    kubelet: Kubelet, tmp_path: Path, scrub: Scrub, replicas: int = 1, deadline: str = "20s"
) -> AsyncIterator[Node]:
    async with running(kubelet, tmp_path, CONFIG % (replicas, scrub.path, deadline)) as node:
        await node.ready(GPU, replicas)
        yield node


def prepared(kubelet: Kubelet) -> list[Any]:
    return [call for call in kubelet.calls if call.method == "PreStartContainer"]


async def test_after_its_last_container_a_device_is_cleaned_and_offered_again(
    kubelet: Kubelet, tmp_path: Path, scrub: Scrub
):
    async with cleaning(kubelet, tmp_path, scrub) as node:
        pod = await kubelet.run_pod("first", {"main": {GPU: 1}})
        assert pod.phase == "Running", pod.message
        assert scrub.ran == [], "it was clean"
        await kubelet.delete_pod(pod)
        await node.until_fact("cleaned", device="W-0")
        await kubelet.wait_for_allocatable(GPU, 1, PATIENCE_S)
        assert scrub.ran == [f"W-0 W-0 {GPU}"]


async def test_a_command_that_fails_keeps_the_device_from_pods_until_an_operator_has_looked(
    kubelet: Kubelet, tmp_path: Path, scrub: Scrub
):
    async with cleaning(kubelet, tmp_path, scrub) as node:
        pod = await kubelet.run_pod("first", {"main": {GPU: 1}})
        scrub.does("echo memory is stuck >&2; exit 3")
        await kubelet.delete_pod(pod)
        await kubelet.wait_for_allocatable(GPU, 0, PATIENCE_S)
        await node.until_fact("cleanup-failed", device="W-0")
        (device,) = node.status().devices
        assert device.cause == f"cleanup-failed: {scrub.path} ended with exit code 3: memory is stuck"
        await node.stop()
        node.start()
        await node.until(lambda: node.phase(GPU) is not None)
        (device,) = node.status().devices
        assert device.cause.startswith("cleanup-failed"), "a restart is no clean-up"
        scrub.does("exit 0")
        await node.daemon.questions.clear({"device": "W-0"}, itself())
        await kubelet.wait_for_allocatable(GPU, 1, PATIENCE_S)


async def test_a_command_that_hangs_is_ended_and_has_failed(kubelet: Kubelet, tmp_path: Path, scrub: Scrub):
    async with cleaning(kubelet, tmp_path, scrub, deadline="200ms") as node:
        pod = await kubelet.run_pod("first", {"main": {GPU: 1}})
        scrub.does("sleep 1000")
        await kubelet.delete_pod(pod)
        fact = await node.until_fact("cleanup-failed", device="W-0")
        assert fact.keys["reason"] == f"{scrub.path} has not ended in 0.2 s"


async def test_the_next_container_waits_when_it_comes_before_the_release_was_seen(
    kubelet: Kubelet, tmp_path: Path, scrub: Scrub, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cleanup, "LOOK_S", 3600.0)
    async with cleaning(kubelet, tmp_path, scrub) as node:
        first = await kubelet.run_pod("first", {"main": {GPU: 1}})
        await kubelet.delete_pod(first)
        scrub.does("while [ ! -e go ]; do sleep 0.02; done")
        waits = asyncio.create_task(kubelet.run_pod("second", {"main": {GPU: 1}}))
        await kubelet.wait_for(lambda: len(prepared(kubelet)) == 2, PATIENCE_S)
        await node.until(lambda: node.status().devices[0].cause == "unclean: it is being cleaned")
        assert (waits.done(), prepared(kubelet)[-1].seconds) == (False, None)
        (tmp_path / "go").touch()
        second = await waits
        assert second.phase == "Running", second.message
        await node.until_fact("cleaned", device="W-0")
        assert (await kubelet.restart_container(second, "main")).state == "running"
        assert len(scrub.ran) == 1, "a container that starts again keeps what it has"


async def test_a_container_is_refused_with_the_reason_when_the_clean_up_before_it_fails(
    kubelet: Kubelet, tmp_path: Path, scrub: Scrub, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cleanup, "LOOK_S", 3600.0)
    async with cleaning(kubelet, tmp_path, scrub):
        await kubelet.delete_pod(await kubelet.run_pod("first", {"main": {GPU: 1}}))
        scrub.does("exit 1")
        second = await kubelet.run_pod("second", {"main": {GPU: 1}})
        assert second.containers["main"].state != "running"
        assert "W-0 is not clean" in second.containers["main"].message
        assert "fairlead clear W-0" in second.containers["main"].message


async def test_a_shared_device_is_cleaned_when_the_last_of_its_tenants_has_left(
    kubelet: Kubelet, tmp_path: Path, scrub: Scrub
):
    async with cleaning(kubelet, tmp_path, scrub, replicas=2) as node:
        first, second = [await kubelet.run_pod(name, {"main": {GPU: 1}}) for name in ("first", "second")]
        await node.until_fact("cleanup-skipped", device="W-0")
        await kubelet.delete_pod(first)
        third = await kubelet.run_pod("third", {"main": {GPU: 1}})
        assert third.phase == "Running", third.message
        assert scrub.ran == [], "another tenant is on it"
        await kubelet.delete_pod(second)
        await kubelet.delete_pod(third)
        await node.until_fact("cleaned", device="W-0")


async def test_a_device_that_was_used_before_a_restart_is_cleaned_after_it(
    kubelet: Kubelet, tmp_path: Path, scrub: Scrub
):
    async with cleaning(kubelet, tmp_path, scrub) as node:
        pod = await kubelet.run_pod("first", {"main": {GPU: 1}})
        await node.stop()
        await kubelet.delete_pod(pod)
        assert scrub.ran == []
        node.start()
        await node.until_fact("cleaned", device="W-0")


async def test_a_file_that_is_damaged_is_a_problem_and_keeps_no_device_back(
    kubelet: Kubelet, tmp_path: Path, scrub: Scrub
):
    kept = kubelet.plugin_dir / ".fairlead.unclean"
    kept.write_bytes(b"\xff{")
    kept.chmod(0o600)
    async with cleaning(kubelet, tmp_path, scrub) as node:
        assert any(str(kept) in problem for problem in node.status().problems)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{command: []}", "the program must be an absolute path"),
        ("{command: [scrub]}", "the program must be an absolute path"),
        ("{command: [/bin/true], deadline: 1h}", "at most 10m"),
        (f"{{command: [/bin/true, {','.join('x' * 64)}]}}", "at most 64 words"),
        ("{comand: [/bin/true]}", "comand"),
    ],
)
def test_a_clean_up_that_cannot_work_is_refused(tmp_path: Path, text: str, words: str):
    file = tmp_path / "f.yaml"
    file.write_text(f"backends: [{{kind: sim, fleet: small}}]\nrules: [{{resource: a.example/x, cleanup: {text}}}]\n")
    with pytest.raises(ConfigError, match=words):
        load(str(file))
