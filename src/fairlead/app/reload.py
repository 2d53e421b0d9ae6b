"""Notices a changed configuration file, and knows which settings cannot change while running."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fairlead.config.spec import Config
from fairlead.model.ports import Clock

POLL_S = 2.0


class FileWatch:
    """Polls one file. A ConfigMap is swapped by a symbolic link above it, which `stat` follows and events do not."""

    def __init__(self, path: Path, clock: Clock, poll_s: float = POLL_S) -> None:
        self._path = path
        self._clock = clock
        self._poll_s = poll_s
        self._known = self.look()  # now, not when the watch begins: a start takes time

    def look(self) -> tuple[int, int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size

    async def run(self, on_change: Callable[[], None]) -> None:
        while True:
            await self._clock.sleep(self._poll_s)
            now = self.look()
            # A file that is gone is being replaced; the old configuration stays until there is another.
            if now is not None and now != self._known:
                self._known = now
                on_change()


def needs_restart(old: Config, new: Config) -> tuple[str, ...]:
    """The changed settings that only a new process can take."""
    pairs = {
        "kubelet.directory": (old.kubelet.directory, new.kubelet.directory),
        "kubelet.registration": (old.kubelet.registration, new.kubelet.registration),
        "kubelet.socket": (old.kubelet.socket, new.kubelet.socket),
        "kubelet.socketName": (old.kubelet.socket_name, new.kubelet.socket_name),
        "kubelet.watcherDirectory": (old.kubelet.watcher_directory, new.kubelet.watcher_directory),
        "cluster": (old.cluster, new.cluster),
        "status.socket": (old.status.socket, new.status.socket),
        "log.format": (old.log.format, new.log.format),
        "instance": (old.instance, new.instance),
    }
    return tuple(name for name, (before, after) in pairs.items() if before != after)
