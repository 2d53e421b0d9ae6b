"""Which files are sockets of ours and the kubelet's: identities, a watch on their directory, the daemon's lock.

Owns the three facts "kubelet.sock is another file", "our socket is gone" and "somebody else serves here".
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

from fairlead.backends.notices import Notices
from fairlead.model.errors import HostError
from fairlead.model.ports import Clock

KUBELET_SOCKET = "kubelet.sock"
# The net under the kernel's notices: a look now and then; oftener where notices cannot be had; and a quicker one while
# a unit waits for a kubelet, never later than this share of the wait so far.
QUIET_S = 20.0
POLL_S = 2.0
HURRY_MIN_S = 0.002
HURRY_CALM_S = 0.05  # where the kernel gives notice, no look is as quick as that
HURRY_MAX_S = 0.25
HURRY_SHARE = 0.02

Identity = tuple[int, int, int]
Watcher = Callable[[Identity | None], None]


def identity(path: Path) -> Identity | None:
    """Tells one socket file from the next of the same name. Inodes are reused at once, hence the change time."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_ctime_ns) if stat.S_ISSOCK(found.st_mode) else None


class SocketWatch:
    """Follows the identity of some names in one directory, and of paths elsewhere; tells watchers of each change."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory = directory
        self._clock = clock
        self._watchers: dict[str, list[Watcher]] = {}
        self._known: dict[str, Identity | None] = {}
        self._waiting: set[object] = set()
        self._waiting_since_s = 0.0
        self._nap: asyncio.Task[None] | None = None
        self._notices = Notices(self.look)

    def follow(self, name: str, watcher: Watcher) -> Callable[[], None]:
        """Calls the watcher on each change from now on; returns the way to end it."""
        self._watchers.setdefault(name, []).append(watcher)
        self._known.setdefault(name, identity(self.directory / name))

        def leave() -> None:
            watchers = self._watchers.get(name, [])
            if watcher in watchers:
                watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(name, None)
                self._known.pop(name, None)

        return leave

    def expect(self, name: str) -> Identity | None:
        """Takes what stands there now as known: called after binding our own socket."""
        self._known[name] = found = identity(self.directory / name)
        return found

    def look(self) -> None:
        for name in list(self._watchers):
            now = identity(self.directory / name)
            if now != self._known.get(name):
                self._known[name] = now
                for watcher in list(self._watchers.get(name, ())):
                    watcher(now)

    def hurry(self, who: object, waits: bool) -> None:
        """Somebody waits for a change, or no longer does."""
        if waits and who not in self._waiting:
            self._waiting.add(who)
            self._waiting_since_s = self._clock.monotonic()
            if self._nap is not None:
                self._nap.cancel()
        elif not waits:
            self._waiting.discard(who)

    @property
    def pause_s(self) -> float:
        """How long until the next look."""
        told = self._notices.complete
        if not self._waiting:
            return QUIET_S if told else POLL_S
        waited_s = self._clock.monotonic() - self._waiting_since_s
        return min(HURRY_MAX_S, max(HURRY_CALM_S if told else HURRY_MIN_S, waited_s * HURRY_SHARE))

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._notices.arm([self.directory, *{(self.directory / name).parent for name in self._watchers}])
                self.look()
                self._nap = asyncio.create_task(self._clock.sleep(self.pause_s), name="socket-nap")
                try:
                    await asyncio.wait({self._nap})
                finally:
                    self._nap.cancel()
        finally:
            self._notices.close()


class DirectoryLock:
    """One daemon of a name per directory. The file names the holder, so that the second can say who it is.

    A dot file: the kubelet counts the others in this directory as checkpoints.
    """

    def __init__(self, directory: Path, name: str = "fairlead", what: str = "") -> None:
        self._path = directory / f".{name}.lock"
        self._what = what or str(directory)
        self._fd: int | None = None

    def acquire(self, description: str) -> None:
        if self._fd is not None:
            return
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HostError(
                f"{self._path.parent}: cannot write here ({error.strerror}). Give a directory this user may write, "
                "or run as a user who may"
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 512, 0).decode(errors="replace").strip() or "an unknown process"
            os.close(fd)
            raise HostError(
                f"{self._what} is already served by {holder}. Stop it first, or give this one another --plugin-dir "
                "or --instance"
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()} ({description})\n".encode()[:512], 0)
        self._fd = fd

    def release(self) -> None:
        """Forgets the lock. The file stays: removing it would let two daemons each hold "the" lock."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None
