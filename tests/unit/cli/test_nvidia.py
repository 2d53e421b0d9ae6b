"""`fairlead nvidia` as a process: signals that come early, odd places, and how its programs end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE_S = 60


def play(script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter: signals and the collector are a whole process's."""
    command = [sys.executable, "-c", script]
    env = {**os.environ, **environ}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=env)


def fairlead(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return play(f"from fairlead.cli import main; main({['nvidia', *args]!r})", **environ)


@pytest.mark.parametrize("word", ["nvidia", "run"])
def test_a_hang_up_before_anybody_listens_waits_and_ends_nobody(word: str):
    script = f"""
import os, signal
import fairlead.app.start
def load():
    os.kill(os.getpid(), signal.SIGHUP)
    assert signal.SIGHUP in signal.sigpending()
    os._exit(7)
fairlead.app.start.load_libraries = load
from fairlead.cli import main
main([{word!r}])
"""
    assert play(script).returncode == 7


def test_hang_ups_one_after_the_other_do_not_end_the_labels(tmp_path: Path):
    script = f"""
import os, signal
from fairlead.cli import main
from fairlead.programs.labels import loop
from fairlead.programs.labels.outputs import FileOutput
read, write, written, reads = loop.read_settings, FileOutput.write, [], []
def settings(*args):
    reads.append(args)
    if 1 < len(reads) < 5:
        os.kill(os.getpid(), signal.SIGHUP)  # between two rounds
    return read(*args)
async def tell(self, labels):
    await write(self, labels)
    written.append(labels)
    os.kill(os.getpid(), signal.SIGHUP if len(written) < 3 else signal.SIGTERM)
loop.read_settings, FileOutput.write = settings, tell
main(["nvidia", "labels", "--use-node-feature-api=false", "--output-file={tmp_path}/gfd", "--sleep-interval=infinite",
      "--device-discovery-strategy=vfio", "--host-root={tmp_path}"])
"""
    done = play(script)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("word", ["config-manager", "labels", "mps-daemon"])
def test_programs_beside_the_plugin_collect_their_garbage(word: str):
    script = f"""
import gc
from importlib import import_module
from fairlead.cli import main
from fairlead.cli.dialect import SUBCOMMANDS
import_module(SUBCOMMANDS["nvidia"][{word!r}]).main = lambda args: 7 if gc.isenabled() else 8
main(["nvidia", {word!r}])
"""
    assert play(script).returncode == 7


def test_a_watch_that_breaks_ends_the_config_manager(tmp_path: Path):
    script = """
from fairlead.cli import main
from fairlead.cluster.nodes import NodeWatch
async def broken(self):
    raise RuntimeError("the watch is broken")
NodeWatch.run = broken
main(["nvidia", "config-manager", "--node-name=n", "--config-file-srcdir=.", "--config-file-dst=x"])
"""
    config = tmp_path / "config"
    config.write_text(
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
    )
    done = play(script, KUBECONFIG=str(config))
    assert done.returncode == 70
    assert "the watch is broken" in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["labels", "--use-node-feature-api=false", "--output-file=/"], "--output-file: '/' is a directory"),
        (["labels", "--use-node-feature-api=false", "--output-file=."], "--output-file: '.' is a directory"),
        (["labels", "--use-node-feature-api=false", "--sleep-interval=-5s"], "--sleep-interval: -5 s is no time"),
        (["config-manager", "--node-name=n", "--config-file-srcdir=s", "--config-file-dst=/"], "'/' is a directory"),
        (["config-manager", "--node-name=n", "word"], "'word' is no flag"),
    ],
)
def test_what_cannot_be_is_said_and_ends_with_1(args: list[str], words: str):
    done = fairlead(*args)
    assert (done.returncode, words in done.stderr, len(done.stderr.splitlines())) == (1, True, 1), done.stderr


def test_no_number_is_no_time_to_wait(tmp_path: Path):
    file = tmp_path / "c.yaml"
    file.write_text("flags: {gfd: {sleepInterval: .nan}}")
    done = fairlead("labels", "--use-node-feature-api=false", f"--config-file={file}")
    assert (done.returncode, "--sleep-interval: nan s is no time" in done.stderr) == (1, True), done.stderr


def test_a_config_manager_still_ends_at_a_hang_up(tmp_path: Path):
    script = """
import os, signal
from fairlead.cli import main, nvidia_config_manager
nvidia_config_manager.read_settings = lambda *args: os.kill(os.getpid(), signal.SIGHUP)
main(["nvidia", "config-manager"])
"""
    assert play(script).returncode == -signal.SIGHUP
