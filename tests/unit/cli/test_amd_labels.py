"""`fairlead amd labels` as a process: what it prints, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.amd import machines, tree

PATIENCE_S = 60


def words(*args: str) -> list[str]:
    return [sys.executable, "-m", "fairlead", "amd", "labels", *args]


def labels(*args: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "DS_NODE_NAME"}
    return subprocess.run(words(*args), capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=env)


def test_labels_can_be_seen_without_a_cluster(tmp_path: Path):
    tree.write(tmp_path, machines.vegas())
    done = labels("-device-id", "-vram", "--oneshot", "--output-file=", f"--host-root={tmp_path}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "amd.com/gpu.device-id=6860",
        "amd.com/gpu.vram=16G",
        "beta.amd.com/gpu.device-id=6860",
        "beta.amd.com/gpu.device-id.6860=2",
        "beta.amd.com/gpu.vram=16G",
        "beta.amd.com/gpu.vram.16G=2",
    ]


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["-vramm"], 2, "flag provided but not defined: -vramm"),
        (["-vram"], 2, "DS_NODE_NAME is not set"),
        (["-vram", "--oneshot", "--output-file=", "--host-root=/nowhere"], 1, "amdgpu is not loaded"),
        (["-vram", "--oneshot", "--node-name=n", "--kubeconfig=/nowhere"], 1, "/nowhere"),
    ],
)
def test_what_cannot_be_is_one_line_and_a_code(args: list[str], code: int, text: str):
    done = labels(*args)
    assert (done.returncode, text in done.stderr, len(done.stderr.splitlines())) == (code, True, 1), done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_hang_up_begins_anew_and_a_signal_ends_it_with_0(tmp_path: Path, number: signal.Signals):
    tree.write(tmp_path, machines.vegas())
    args = words("-device-id", "--output-file=", f"--host-root={tmp_path}")
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(3)]
        assert lines[0] == "amd.com/gpu.device-id=6860\n"
        running.send_signal(signal.SIGHUP)  # everything anew
        assert [running.stdout.readline() for _ in range(3)] == lines
        running.send_signal(number)
        assert running.wait(PATIENCE_S) == 0
