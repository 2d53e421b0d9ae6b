"""Which files are sockets of ours and the kubelet's: identities, a watch on their directory, the daemon's lock.

Owns the three facts "kubelet.sock is another file", "our socket is gone" and "another process serves here".
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

from fairlead.kit.files import kind_of
from fairlead.kit.notices import Notices
from fairlead.kit.text import encodable, printable
from fairlead.model.errors import HostError
from fairlead.model.ports import Clock

KUBELET_SOCKET = "kubelet.sock"
# The net under the kernel's notices: a look now and then; oftener where notices cannot be had; and a quicker one while
# an endpoint waits for a kubelet, never later than this share of the wait so far.
QUIET_S = 20.0
POLL_S = 2.0
HURRY_MIN_S = 0.002
HURRY_CALM_S = 0.05  # where the kernel gives notice, no look is as quick as that
HURRY_MAX_S = 0.25
HURRY_SHARE = 0.02
_CURES = {
    errno.ENOSPC: "Make room there: files or bytes are used up",
    errno.EDQUOT: "Raise the quota, or make room",
    errno.EMFILE: "Raise the limit of open files",
    errno.ENFILE: "The system has too many open files",
}
HOLDER_BYTES = 512  # of what a lock says of its holder

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
        """An endpoint waits for a change, or no longer does."""
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
        noticed = self._notices.complete
        if not self._waiting:
            return QUIET_S if noticed else POLL_S
        waited_s = self._clock.monotonic() - self._waiting_since_s
        return min(HURRY_MAX_S, max(HURRY_CALM_S if noticed else HURRY_MIN_S, waited_s * HURRY_SHARE))

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

    @property
    def held(self) -> bool:
        return self._fd is not None

    def acquire(self, description: str) -> None:
        """Raises HostError, and holds nothing then."""
        if self._fd is not None:
            return
        fd = self._open()
        try:
            self._check(fd)
            self._lock(fd)
            # The holder's name is for people. A disk that is full keeps it out of the file, not us out of the lock.
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"pid {os.getpid()} ({encodable(description)})\n".encode()[:HOLDER_BYTES], 0)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def _open(self) -> int:
        # Never through a link, and never waiting for the other end of a FIFO.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            return os.open(self._path, flags, 0o600)
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:
                raise self._strange() from None
            cure = _CURES.get(error.errno or 0, "Give a directory this user may write, or run as a user who may")
            raise HostError(f"{self._path.parent}: cannot write here ({error.strerror}). {cure}") from error

    def _check(self, fd: int) -> None:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise self._strange()

    def _strange(self) -> HostError:
        what = "gone again"
        with contextlib.suppress(OSError):
            found = self._path.lstat()
            what = "a file with several names" if stat.S_ISREG(found.st_mode) else kind_of(found.st_mode)
        return HostError(f"{self._path} is {what}, where a lock file must be. Find out who put it there, and remove it")

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = printable(os.pread(fd, HOLDER_BYTES, 0).decode(errors="replace").strip()) or "an unknown process"
            raise HostError(
                f"{self._what} is already served by {holder}. Stop it first, or give this one another --plugin-dir "
                "or --instance"
            ) from error
        except OSError as error:
            raise HostError(f"{self._path}: cannot be locked: {error.strerror}") from error

    def release(self) -> None:
        """Forgets the lock. The file stays: removing it would let two daemons each hold "the" lock."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            os.close(fd)
