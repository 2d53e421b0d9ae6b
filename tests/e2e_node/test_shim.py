"""The stand-in for systemd: units by name, and a restart that waits for the new kubelet's own word."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e_node import shim

SHIM = Path(shim.__file__)
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Call]:
    """Calls the shim under a name, as the suite does. What it has started ends with the test."""
    units = tmp_path / "units"

    def run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / name
        script.write_bytes(SHIM.read_bytes())
        env = {**os.environ, "FAIRLEAD_E2E_UNITS": str(units)}
        command = [sys.executable, "-SE", str(script), *words]
        return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)

    yield run
    for unit in units.glob("*"):
        if pid := shim.pid_of(unit):
            os.kill(pid, 9)


def test_a_unit_is_started_listed_and_stopped(call: Call, tmp_path: Path):
    log = tmp_path / "log"
    words = ["-p", "Delegate=true", "-p", f"StandardError=append:{log}", "--unit=kubelet-7.service", "--slice=x.slice"]
    script = 'echo "$0" >&2; exec sleep 1000'
    # The suite writes % and $ twice, for systemd.
    assert call("systemd-run", *words, "/bin/sh", "-c", script.replace("$", "$$"), "50%%").returncode == 0
    listed = call("systemctl", "list-units", "*kubelet*", "--state=running").stdout
    assert listed.startswith("kubelet-7.service loaded active running")
    shim.until(lambda: log.exists() and log.read_text() == "50%\n", "it writes to its log", 10)
    assert call("systemctl", "stop", "kubelet-7.service").returncode == 0
    assert call("systemctl", "list-units", "*kubelet*", "--state=running").stdout == ""
    assert "exited" in call("systemctl", "list-units", "*kubelet*").stdout


def test_sudo_runs_the_command(call: Call):
    assert call("sudo", "echo", "as", "it", "is").stdout == "as it is\n"


def test_it_says_which_systemd_it_stands_for(call: Call):
    assert call("systemd-run", "--version").stdout.startswith("systemd 2")


@pytest.mark.parametrize("words", [("systemd-run", "--unit=x"), ("systemctl", "reboot", "*"), ("sudo",)])
def test_what_it_does_not_know_it_refuses(call: Call, words: tuple[str, ...]):
    call("systemd-run", "--unit=kubelet-1", "/bin/sleep", "1000")
    done = call(*words)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{words[0]}: ShimError: ")


def node(version: int, heartbeat: str, *, ready: str = "True") -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat}
    return {"metadata": {"resourceVersion": str(version)}, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("found", "posted"),
    [
        (node(8, "2026-01-01T00:00:10Z"), True),
        (node(7, "2026-01-01T00:00:10Z"), False),  # what the old one has left
        (node(8, "2026-01-01T00:00:09Z"), False),  # another change, without a word from the kubelet
        (node(8, "2026-01-01T00:00:10Z", ready="False"), False),
        ({"metadata": {"resourceVersion": "8"}, "status": {}}, False),
    ],
)
def test_a_status_counts_when_it_is_the_new_kubelets(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], posted: bool
):
    started_s = 1767225610  # 2026-01-01T00:00:10Z
    monkeypatch.setattr(shim, "node", lambda: found)
    assert shim.has_posted("7", started_s) is posted


@pytest.mark.parametrize(
    ("known", "back"), [({"a", "b"}, True), ({"a", "b", "of-a-file"}, True), ({"a"}, False), (set(), False)]
)
def test_the_pods_are_back_when_the_kubelet_lists_them_all(
    monkeypatch: pytest.MonkeyPatch, known: set[str], back: bool
):
    monkeypatch.setattr(shim, "_ask", lambda _path: pods("a", "b"))
    monkeypatch.setattr(shim, "_get", lambda *_: pods(*known))
    assert shim.has_its_pods() is back


def test_a_kubelet_that_does_not_answer_yet_has_no_pods(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> dict[str, Any]:
        raise ConnectionRefusedError

    monkeypatch.setattr(shim, "_get", refuse)
    assert not shim.has_its_pods()


def pods(*uids: str) -> dict[str, Any]:
    return {"items": [{"metadata": {"uid": uid}, "spec": {"nodeName": "node1"}} for uid in uids]}
