"""The node keeps to itself: strangers on the machine are not disturbed, and nothing is left when it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.node.cluster import Cluster
from tests.node.rig.house import inside
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.places import INSIDE, PLUGINS
from tests.node.rig.steps import until

ROOT = Path(__file__).parents[2]
RIG = (sys.executable, "-m", "tests.node.rig")
SUITE = (sys.executable, "-m", "pytest", "-m", "node", "-s", "-p", "no:cacheprovider")
A_TEST = "tests/node/test_registration.py::test_a_pod_gets_exactly_what_it_asks_for"
STRANGER = INSIDE / "device-plugins" / "stranger.sock"
PATIENCE_S = 120.0


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    """Another plugin's socket, where every plugin of this machine puts it."""
    made = [path for path in (INSIDE, STRANGER.parent) if not path.exists()]
    STRANGER.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(STRANGER))
        listener.listen()
        try:
            yield listener
        finally:
            STRANGER.unlink(missing_ok=True)
            for path in reversed(made):
                path.rmdir()


@pytest.mark.usefixtures("stranger")
def test_a_kubelet_that_starts_does_not_wipe_the_sockets_of_a_plugin_outside(cluster: Cluster):
    assert cluster.api.get("/readyz") == "ok"
    stop_kubelet()
    start_kubelet()
    until((PLUGINS / "kubelet.sock").exists, "the kubelet listens")
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(STRANGER))
    assert not (STRANGER.parent / "kubelet.sock").exists()


@pytest.mark.usefixtures("stranger", "node")
def test_inside_only_the_nodes_own_plugins_are_seen():
    seen = subprocess.run(inside("/bin/ls", STRANGER.parent), capture_output=True, text=True, check=True).stdout
    assert "kubelet.sock" in seen
    assert STRANGER.name not in seen


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """For a second node. It is taken down even if the test could not."""
    place = tmp_path / "n"
    yield place
    run("down", place)


def test_a_second_node_runs_beside_this_one_and_leaves_nothing(cluster: Cluster, state: Path):
    brought_up = run("up", state)
    assert brought_up.returncode == 0, brought_up.stderr
    kubectl = [str(state / "bin/kubectl"), "--kubeconfig", str(state / "config/admin.kubeconfig")]
    told = subprocess.run([*kubectl, "get", "nodes"], capture_output=True, text=True, check=False)
    assert "Ready" in told.stdout, told.stderr
    assert cluster.heard() > 0, "the first one is still there"
    # One that lost its way: a program of the node that nobody ends any more.
    keeper = json.loads((state / "pids/keeper").read_text())["pid"]
    lost = subprocess.Popen(["nsenter", f"--mount=/proc/{keeper}/ns/mnt", "sleep", "1000"])
    until(lambda: Path(f"/proc/{lost.pid}/ns/mnt").stat() == Path(f"/proc/{keeper}/ns/mnt").stat(), "it is inside")
    assert run("down", state).returncode == 0
    assert lost.wait(10) == -signal.SIGKILL
    assert leavings(state) == []


def test_ctrl_c_while_a_node_starts_takes_it_down_again(state: Path):
    with started([*RIG, "up"], state) as process:
        until((state / "pids/containerd").exists, "containerd is started", PATIENCE_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    assert leavings(state) == []


@pytest.mark.parametrize("with_signal", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_a_run_of_tests_that_is_interrupted_takes_its_node_down(state: Path, with_signal: signal.Signals):
    with started([*SUITE, A_TEST], state) as process:
        until(lambda: any((state / "pods").glob("*/*")), "a container is made", PATIENCE_S)
        process.send_signal(with_signal)
        assert process.wait(PATIENCE_S) != 0
    assert leavings(state) == []


FAILS = """
def test_it_fails(cluster):
    cluster.run_pod("left", {}, hostNetwork=False)
    assert cluster is None
"""


def test_a_run_of_tests_that_fails_takes_its_node_down(state: Path):
    file = state.parent / "tests" / "node" / "test_fails.py"
    file.parent.mkdir(parents=True)
    file.write_text(FAILS)
    with started(
        [*SUITE, "-c", str(ROOT / "pyproject.toml"), "-p", "tests.node.conftest", str(file)], state
    ) as process:
        assert process.wait(PATIENCE_S) == 1
    said = (state.parent / "log").read_text()
    assert "1 failed" in said
    assert "logs are kept in" in said
    assert leavings(state) == []


def run(word: str, state: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "NODE_STATE": str(state)}
    return subprocess.run([*RIG, word], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@contextmanager
def started(command: list[str], state: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (state.parent / "log").open("wb") as log:
        env = {**os.environ, "NODE_STATE": str(state)}
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        print((state.parent / "log").read_text())


def leavings(state: Path) -> list[str]:
    """By other means than the rig's own: whatever still names the state directory."""
    found = [str(state)] if state.exists() else []
    name = f"{state.parent.name}/{state.name}"  # a mount may tell the path as of its own file system
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if name in (entry / "cmdline").read_text() or name in (entry / "mountinfo").read_text():
                found.append(f"process {entry.name}")
    return found
