"""What the contract of a backend measures: a blocked event loop, what is left open, and what plain code touches."""

from __future__ import annotations

import asyncio
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

from fairlead.app.watchdog import places

TICK_S = 0.01
_TOUCHES = ("open", "os.listdir", "os.scandir", "os.system", "subprocess.Popen", "socket.connect", "ctypes.dlopen")


class Looks(ABC):
    """Looks again and again, from a thread, while the `with` block lasts."""

    def __init__(self, every_s: float, name: str) -> None:
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def look(self) -> None: ...

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            self.look()


class Heartbeat(Looks):
    """Sees from a thread when the loop does not turn. It counts its own ticks, which a busy machine slows down too."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(TICK_S, "heartbeat")
        self._limit = round(limit_s / TICK_S)
        self._ticks = 0  # since the loop has turned
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self.blocked: list[str] = []  # where

    def look(self) -> None:
        self._ticks += 1
        if self._ticks == self._limit:
            at, via = places(sys._current_frames().get(self._watched))  # noqa: SLF001 - documented, and the only way
            self.blocked.append(" from ".join([at, *via[:1]]))
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        self._ticks = 0


def traces() -> dict[tuple[str, int], str]:
    """Threads, tasks and descriptors of this process, each with a name for people."""
    found: dict[tuple[str, int], str] = {}
    for thread in threading.enumerate():
        if not thread.name.startswith("asyncio_"):  # those of asyncio.to_thread are the loop's
            found["thread", thread.ident or 0] = thread.name
    for task in asyncio.all_tasks():
        found["task", id(task)] = task.get_name()
    for entry in [*Path("/proc/self/fd").iterdir()]:
        with suppress(OSError):  # the one that this directory was read with
            found["descriptor", int(entry.name)] = str(entry.readlink())
    return found


class _Touched(threading.local):
    seen: list[str] | None = None


_touched = _Touched()


@contextmanager
def touched() -> Iterator[list[str]]:
    """The files, sockets and processes that this thread opens meanwhile."""
    _add_hook()
    seen = _touched.seen = []
    try:
        yield seen
    finally:
        _touched.seen = None


@cache
def _add_hook() -> None:
    sys.addaudithook(_audit)  # for ever: Python takes none away again


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _touched.seen is not None and event in _TOUCHES:
        _touched.seen.append(f"{event} {args[0] if args else ''!s:.80}")
