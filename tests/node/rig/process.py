"""Processes of the node: started with a log and a pid file, found again by a later command, ended by pid.

A pid alone may belong to somebody else by now; pid and start time together do not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.node.rig.places import LOGS, PIDS
from tests.node.rig.steps import NodeFailedError, until

END_S = 20.0


def start(name: str, command: Sequence[str | Path], env: dict[str, str] | None = None) -> None:
    """Starts it in a session of its own: Ctrl-C is for us, who then end it in the right order."""
    with (LOGS / f"{name}.log").open("ab") as log:
        child = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    (PIDS / name).write_text(json.dumps({"pid": child.pid, "born": born(child.pid)}))
    _children[name] = child


def running(name: str) -> int | None:
    """Its pid, if it is still the process that was started."""
    _reap(name)
    try:
        told = json.loads((PIDS / name).read_text())
    except (OSError, ValueError):
        return None
    pid = int(told["pid"])
    return pid if told["born"] is not None and born(pid) == told["born"] else None


def check(name: str) -> None:
    if running(name) is None:
        raise NodeFailedError(f"{name} ended; the end of {LOGS / name}.log:\n{tail(name)}")


def wait(condition: Callable[[], bool], what: str, *names: str, patience_s: float = 90.0) -> None:
    """Until the condition holds; a process that ends meanwhile is the reason why it never will."""

    def look() -> bool:
        for name in names:
            check(name)
        return condition()

    until(look, what, patience_s)


def end(name: str, with_signal: signal.Signals = signal.SIGTERM) -> None:
    """Asks it to end, waits, and kills it if it does not."""
    pid = running(name)
    if pid is not None:
        os.kill(pid, with_signal)
        try:
            until(lambda: running(name) is None, f"{name} ends", END_S)
        except NodeFailedError:
            os.kill(pid, signal.SIGKILL)
            until(lambda: running(name) is None, f"{name} is killed", END_S)
    (PIDS / name).unlink(missing_ok=True)


def tail(name: str, lines: int = 12) -> str:
    try:
        return "\n".join((LOGS / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"


def born(pid: int) -> int | None:
    """The start time of a living process, in clock ticks since boot."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _reap(name: str) -> None:
    child = _children.get(name)
    if child is not None and child.poll() is not None:
        del _children[name]


_children: dict[str, subprocess.Popen[bytes]] = {}  # only to reap them; the pid files are what counts
