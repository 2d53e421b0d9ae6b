"""The kernel's notices of changes in directories, by signal: F_NOTIFY.

inotify would tell more, but Python reaches it through ctypes only, at 2 MB and 20 ms. That something changed is all
that anyone here needs to know. Where notices cannot be had (another thread, an odd file system, no more files to open)
nothing is lost but speed: their users look by themselves as well, now and then.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar

CHANGES = fcntl.DN_CREATE | fcntl.DN_DELETE | fcntl.DN_RENAME | fcntl.DN_MULTISHOT


class Notices:
    """Calls `on_change` on the loop after something came, went or was renamed in one of the armed directories."""

    _live: ClassVar[set[Notices]] = set()

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.on_change = on_change
        self.complete = False  # every directory that is wanted is armed: nothing there goes unnoticed
        self._fds: dict[str, int] = {}

    def arm(self, directories: Iterable[str | os.PathLike[str]]) -> None:
        """These directories and no others; again those that are not the ones they were."""
        wanted = {os.fspath(directory) for directory in directories}
        for directory in [known for known in self._fds if known not in wanted or not self._stands(known)]:
            os.close(self._fds.pop(directory))
        for directory in wanted - self._fds.keys():
            self._open(directory)
        self.complete = wanted == self._fds.keys()

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
        if self in self._live:
            self._live.remove(self)
            if not self._live:
                asyncio.get_running_loop().remove_signal_handler(signal.SIGIO)
                signal.signal(signal.SIGIO, signal.SIG_IGN)  # one may be under way

    def _open(self, directory: str) -> None:
        try:
            if self not in self._live:
                # The handler first: an unhandled SIGIO ends the process.
                asyncio.get_running_loop().add_signal_handler(signal.SIGIO, self._tell)
                self._live.add(self)
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError, RuntimeError):
            return
        try:
            fcntl.fcntl(fd, fcntl.F_NOTIFY, CHANGES)
        except OSError:
            os.close(fd)
        else:
            self._fds[directory] = fd

    def _stands(self, directory: str) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fds[directory]), Path(directory).stat())
        except OSError:
            return False

    @classmethod
    def _tell(cls) -> None:
        for notices in list(cls._live):
            notices.on_change()
