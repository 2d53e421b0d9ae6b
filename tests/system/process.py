"""Runs `fairlead` and other programs as a user would: as processes, with signals, exit codes and standard error."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.system.rig import SIM

from fairlead.testing import Kubelet

PATIENCE_S = 20.0


class Program:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []
        self._more = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.lines.append(line.decode().rstrip())
            self._more.set()
        self._more.set()

    async def says(self, words: str) -> str:
        """The first line that holds the words."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for line in self.lines:
                    if words in line:
                        return line
                if self._reader.done():
                    raise AssertionError(f"it ended without saying {words!r}: {self.lines}")
                self._more.clear()
                await self._more.wait()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ends(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            await self._reader
            return await self._process.wait()

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reader


@asynccontextmanager
async def program(*args: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> AsyncIterator[Program]:
    """A Python program, killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *args,
        cwd=cwd,
        env={**_clean(), **(env or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        limit=2**20,
    )
    running = Program(process)
    try:
        yield running
    finally:
        await running.kill()


async def fairlead(*args: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Runs a command to its end: exit code, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fairlead",
        *args,
        env={**_clean(), **(env or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def _clean() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}


def write_config(root: Path, kubelet: Kubelet | None = None, text: str = SIM, **kubelet_keys: str) -> str:
    directory = kubelet.plugin_dir if kubelet else root / "plugins"
    keys = {"directory": str(directory), "podResources": f"{root}/none.sock"} | kubelet_keys
    path = root / "fairlead.yaml"
    path.write_text(f"{text}\nkubelet: {json.dumps(keys)}\nstatus: {{socket: {root}/fl.sock}}\n")
    return str(path)


def memory_bytes(daemon: Program, what: str) -> int:
    """VmRSS: resident now. VmHWM: at the most so far."""
    text = Path(f"/proc/{daemon.pid}/status").read_text()
    found = re.search(rf"{what}:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) * 1024
