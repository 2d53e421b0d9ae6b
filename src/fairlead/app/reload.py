"""Notices a changed configuration file, reads it beside the loop, and knows which settings cannot change while running.

A file may be large, on a file system that does not answer, or made to be slow. It is read on a thread. Only the look
whether it has changed, one stat every 2 s, is made on the loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

from fairlead.config.load import Loaded
from fairlead.config.spec import Config
from fairlead.kit.owner import Owner
from fairlead.model.errors import FairleadError
from fairlead.model.ports import Clock

POLL_S = 2.0
DEADLINE_S = 30.0  # for one step: to read the file, or to open the backends that it names

T = TypeVar("T")
Note = Callable[[str, str], None]


class ConfigWatch(Protocol):
    """Notices that the configuration may be another one."""

    def watches(self) -> bool:
        """Whether there is a file that could change: a command line is a source too."""
        ...

    async def run(self, on_change: Callable[[], None], note: Note) -> None: ...


def stamp(path: str | Path) -> tuple[int, int, int, int] | None:
    """What changes with a file. The kubelet replaces a ConfigMap through a link above it: `stat` follows that."""
    try:
        found = os.stat(path)  # noqa: PTH116 - text or path
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


class FileWatch:
    """Polls one file: events do not follow links above it."""

    def __init__(self, path: Path, clock: Clock, poll_s: float = POLL_S) -> None:
        self._path = path
        self._clock = clock
        self._poll_s = poll_s
        self._known = stamp(path)  # now, not when the watch begins: a start takes time

    def watches(self) -> bool:
        return stamp(self._path) is not None

    async def run(self, on_change: Callable[[], None], note: Note) -> None:
        del note
        while True:
            await self._clock.sleep(self._poll_s)
            now = stamp(self._path)
            # A file that is gone is being replaced; the old configuration stays until there is another.
            if now is not None and now != self._known:
                self._known = now
                on_change()


class Reloads:
    """One reload after the other. Those that are asked for during one become one more."""

    def __init__(
        self,
        read: Callable[[], Loaded] | None,
        adopt: Callable[[Loaded], Awaitable[None]],
        refuse: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._read = read
        self._adopt = adopt
        self._refuse = refuse
        self._owner = Owner("config", clock)
        self._again = False
        self.task: asyncio.Task[None] | None = None  # while there is something to do

    def ask(self) -> None:
        self._again = self._read is not None
        if self._again and self.task is None:
            self.task = asyncio.create_task(self._work(), name="reload")

    async def _work(self) -> None:
        try:
            while self._again:
                self._again = False
                await self._once()
        finally:
            self.task = None

    async def _once(self) -> None:
        assert self._read is not None
        try:
            await self._adopt(await self.aside(self._read, "reading the configuration"))
        except FairleadError as error:
            self._refuse(str(error))
        except Exception as error:  # noqa: BLE001 - a file must not be able to end the watch on it
            self._refuse(f"the configuration cannot be used: {type(error).__name__}: {error}")

    async def aside(self, work: Callable[[], T], what: str) -> T:
        """Runs it on a thread of its own, with a deadline. A thread that hangs is not given more to do."""
        return await self._owner.call(work, deadline_s=DEADLINE_S, what=what)

    async def stop(self) -> None:
        self._owner.close()
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)


def needs_restart(old: Config, new: Config) -> tuple[str, ...]:
    """The changed settings that only a new process can take."""
    pairs = {
        "kubelet.directory": (old.kubelet.directory, new.kubelet.directory),
        "kubelet.registration": (old.kubelet.registration, new.kubelet.registration),
        "kubelet.socket": (old.kubelet.socket, new.kubelet.socket),
        "kubelet.socketName": (old.kubelet.socket_name, new.kubelet.socket_name),
        "kubelet.watcherDirectory": (old.kubelet.watcher_directory, new.kubelet.watcher_directory),
        "audit": (old.audit, new.audit),
        "cluster": (old.cluster, new.cluster),
        "http": (old.http, new.http),
        "status.socket": (old.status.socket, new.status.socket),
        "watchdog": (old.watchdog, new.watchdog),
        "log": (old.log, new.log),
        "record": (old.record, new.record),
        "instance": (old.instance, new.instance),
    }
    return tuple(name for name, (before, after) in pairs.items() if before != after)
