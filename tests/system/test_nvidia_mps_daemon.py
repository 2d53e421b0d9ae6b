"""`fairlead nvidia mps-daemon` as a process: starts the control daemons, says so, and ends them when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.nvml import Driver, gpus
from tests.unit.backends.nvidia.mpstools import MpsWorld

CONFIG = "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
PATIENCE_S = 30.0


def appears(path: Path) -> None:
    for _ in range(int(PATIENCE_S / 0.02)):
        if path.exists():
            return
        time.sleep(0.02)
    raise TimeoutError(path)


def test_it_starts_limits_marks_and_ends_them(tmp_path: Path):
    (tmp_path / "c.yaml").write_text(CONFIG)
    world = MpsWorld(tmp_path / "tools")
    with Driver(gpus=gpus("H100", 2)).installed(tmp_path / "machine") as node:
        env = {**os.environ, **node.env, "PATH": f"{world.tools.path}:{os.environ['PATH']}"}
        command = [sys.executable, "-m", "fairlead", "nvidia", "mps-daemon", f"--config-file={tmp_path}/c.yaml"]
        command += [f"--mps-dir={tmp_path}/mps", f"--host-root={node.root}"]
        process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE)
        try:
            appears(tmp_path / "mps/.ready")
            assert (tmp_path / "mps/nvidia.com/gpu/.started").exists()
            orders = world.orders()
            assert "set_default_active_thread_percentage 25" in orders
            assert any(order.startswith("set_default_device_pinned_mem_limit 0 ") for order in orders)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == 0, errors.decode()
    assert world.orders()[-1] == "quit"
    assert not (tmp_path / "mps/.ready").exists()


def test_what_is_wrong_is_one_line_and_exit_1(tmp_path: Path):
    (tmp_path / "c.yaml").write_text("version: v2\n")
    command = [sys.executable, "-m", "fairlead", "nvidia", "mps-daemon", f"--config-file={tmp_path}/c.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "unknown version: v2" in done.stderr
