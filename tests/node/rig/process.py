"""Processes of the node: started with a log and a pid file, found again by a later command, ended by pid.

A pid alone may belong to somebody else by now; pid and start time together do not.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.node.rig.places import LOCK, LOGS, PIDS
from tests.node.rig.steps import NodeFailedError, NodeMissingError, until

END_S = 20.0


@contextmanager
def alone() -> Iterator[None]:
    """One run of tests or one command at a time: there is one node. SIGTERM ends it in order, as Ctrl-C does."""
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NodeMissingError("another run uses the node; wait, or name another directory in NODE_STATE") from None
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


def start(name: str, command: Sequence[str | Path]) -> None:
    """Starts it in a session of its own: Ctrl-C is for us, who then end it in the right order."""
    log = os.open(LOGS / f"{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        words = [str(part) for part in command]
        # Not a Popen: the process may outlive this one, and a Popen complains about that.
        ends = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
        pid = os.posix_spawn(words[0], words, os.environ, file_actions=ends, setsid=True)
    finally:
        os.close(log)
        os.close(null)
    (PIDS / name).write_text(json.dumps({"pid": pid, "born": born(pid)}))


def running(name: str) -> int | None:
    """Its pid, if it is still the process that was started."""
    try:
        told = json.loads((PIDS / name).read_text())
    except (OSError, ValueError):
        return None
    pid = int(told["pid"])
    with suppress(ChildProcessError):  # the child of another command
        os.waitpid(pid, os.WNOHANG)
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
