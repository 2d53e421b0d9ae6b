"""Ctrl-C at any moment, also while modules are still being loaded: exit code 130 and no traceback."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from tests.system.rig import PATIENCE_S

# Interrupts itself at the n-th module that is looked for after the command has begun: the same moment on every machine.
SCRIPT = """
import os, signal, sys
from fairlead.cli import main
left = int(sys.argv[1])
def hook(event, _):
    global left
    if event == "import":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(hook)
main(sys.argv[2:])
"""
MANY = 10_000  # more than any command loads
COMMANDS = {
    "run": ["run", "--config", "f.yaml"],
    "validate": ["validate", "--config", "f.yaml"],
    "nvidia": ["nvidia", "--print-config"],
    "status": ["status", "--socket", "/nowhere/s.sock"],
}


async def _interrupted(directory: Path, args: list[str], at: int) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SCRIPT, str(at), *args),
        cwd=directory,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode is not None
    return process.returncode, printed.decode()


@pytest.mark.parametrize("at", [1, 2, 5, 20, 40, 60, 90, 120])
@pytest.mark.parametrize("command", [*COMMANDS])
async def test_an_interrupted_start_ends_quietly(command: str, at: int, tmp_path: Path):
    (tmp_path / "f.yaml").write_text(
        "backends: [{kind: sim, fleet: small}]\nrules: [{resource: example.com/gpu}]\n"
        f"kubelet: {{directory: {tmp_path}, podResources: ''}}\nstatus: {{socket: ''}}\n"
    )
    code, printed = await _interrupted(tmp_path, COMMANDS[command], at)
    lines = [line for line in printed.splitlines() if line.strip()]
    assert not any("Traceback" in line or "Error" in line or "Interrupt" in line for line in lines), printed
    # A daemon that already listens to signals stops in an orderly way.
    assert code == 130 or (command == "run" and code == 0 and "stopped" in lines[-1]), printed


async def test_the_moments_are_while_a_command_starts(tmp_path: Path):
    code, _ = await _interrupted(tmp_path, ["version"], MANY)
    assert code == 0
