"""What a process costs: memory, threads, files, CPU, and how it is started and stopped.

Owns /proc reading and child processes. Must not know what the processes do.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import shutil
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

STOP_S = 5.0
READY_S = 30.0
CPUCLOCK_SCHED = 2  # Linux: which of a process's CPU clocks; this one counts nanoseconds on a core


class PluginFailedError(Exception):
    """A measured process did not do its part; the text carries the last lines it wrote."""


@dataclass(frozen=True, slots=True)
class Footprint:
    pss_mb: float
    rss_mb: float
    threads: int
    fds: int


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    started_ns: int  # CLOCK_MONOTONIC, taken just before the start
    process: asyncio.subprocess.Process
    log: Path

    def footprint(self) -> Footprint:
        pids = _tree(self.pid)
        memory = [rollup(pid) for pid in pids]
        return Footprint(
            pss_mb=sum(each["Pss"] for each in memory) / 1024,
            rss_mb=sum(each["Rss"] for each in memory) / 1024,
            threads=sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in pids),
            fds=sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids),
        )

    def cpu_ns(self) -> int:
        """Time on a core so far, of the whole tree, finer than the ticks of /proc/PID/stat."""
        return sum(time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED) for pid in _tree(self.pid))

    def check(self) -> None:
        if self.process.returncode is not None:
            raise PluginFailedError(f"ended with status {self.process.returncode}\n{self.tail()}")

    def tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


# What a command may run before the measured program: it says on its standard input, a socket, that all is laid out, and
# waits there for the word.
GATE = ("sh", "-c", 'echo ready >&0 && read go && exec "$@" </dev/null', "sh")


@contextlib.asynccontextmanager
async def running(command: Sequence[str | Path], log: Path, *, gated: bool = False) -> AsyncIterator[Running]:
    """Starts a process and, at the end, stops it and waits for it. Gated: its time begins at the end of its GATE."""
    # The same for all, whatever the user's shell says of Python: byte code is kept, as that of an installed program is,
    # but not in the work tree.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env |= {"PYTHONUNBUFFERED": "1", "PYTHONPYCACHEPREFIX": byte_code()}
    ours, theirs = socket.socketpair()
    with log.open("ab") as sink, ours, theirs:
        started_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=theirs.fileno() if gated else asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, env=env
        )
        theirs.close()
        if gated:
            started_ns = await _open_gate(process, ours)
    try:
        yield Running(process.pid, started_ns, process, log)
    finally:
        await _stop(process)


async def _open_gate(process: asyncio.subprocess.Process, gate: socket.socket) -> int:
    """Lets the program go, and says when."""
    loop = asyncio.get_running_loop()
    gate.setblocking(False)
    try:
        async with asyncio.timeout(READY_S):
            ready = await loop.sock_recv(gate, 16)
            started_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            if ready:
                await loop.sock_sendall(gate, b"go\n")
    except BaseException:
        await _stop(process)
        raise
    return started_ns  # where it ended before it was ready, whoever waits for its registration sees that


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


@functools.cache
def byte_code() -> str:
    """A directory for this run alone; a first start fills it."""
    path = tempfile.mkdtemp(prefix="fl-pyc-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def _tree(pid: int) -> list[int]:
    found, queue = [], [pid]
    while queue:
        current = queue.pop()
        found.append(current)
        for children in Path(f"/proc/{current}/task").glob("*/children"):
            queue += map(int, children.read_text().split())
    return found


def rollup(pid: int) -> dict[str, int]:
    """Memory of a process, in KiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(rest.split()[0]) for name, rest in (line.split(":", 1) for line in lines)}
