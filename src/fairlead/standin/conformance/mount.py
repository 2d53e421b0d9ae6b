"""The mount point for plugins that hard-code the kubelet's directory. Owns what is made for it, and removes it again.

Several runs may share the mount point, each with a mount of its own. A lock says who is there; the last one cleans up.
"""

import fcntl
import os
from pathlib import Path

HARD_CODED = Path("/var/lib/kubelet/device-plugins")
LOCK = Path("/run/fairlead-conformance.lock")
MOUNT_FAILED = 125
# Runs in a mount namespace of its own: nothing of this is seen outside, and it ends with the process.
_MOUNT = f'mount --bind "$0" "$1" || exit {MOUNT_FAILED}; shift; exec "$@"'


class NeedsRoot(Exception):
    """What was asked for takes root."""


def mounted(directory: Path, words: list[str]) -> list[str]:
    """The command, with the directory mounted over the hard-coded one."""
    mount = ["sh", "-c", _MOUNT, str(directory), str(HARD_CODED)]
    return ["unshare", "--mount", "--propagation", "private", *mount, *words]


class MountPoint:
    """The hard-coded directory exists while one of these is open, in any process."""

    def __init__(self) -> None:
        self._lock = -1

    @property
    def is_open(self) -> bool:
        return self._lock >= 0

    def open(self) -> None:
        if os.geteuid() != 0:
            raise NeedsRoot("--private-mount needs root: it mounts a directory over " + str(HARD_CODED))
        lock = _lock_shared()
        for path in reversed([path for path in (HARD_CODED, *HARD_CODED.parents) if not path.exists()]):
            try:
                path.mkdir(mode=0o755)
            except FileExistsError:
                continue  # another run was faster, and has written it down
            os.lseek(lock, 0, os.SEEK_END)
            os.write(lock, f"{path}\n".encode())
        self._lock = lock

    def close(self) -> None:
        """The last one out removes what was made, unless something was put into it."""
        if not self.is_open:
            return
        lock, self._lock = self._lock, -1
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # another run is there still
        else:
            made = {Path(line) for line in os.pread(lock, 65536, 0).decode().splitlines()}
            for path in (HARD_CODED, *HARD_CODED.parents):
                if path in made and path.is_dir() and not any(path.iterdir()):
                    path.rmdir()
            LOCK.unlink(missing_ok=True)
        finally:
            os.close(lock)


def _lock_shared() -> int:
    """The lock, shared. One that cleans up holds it alone for a moment, and removes the file."""
    while True:
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            if os.fstat(lock).st_ino == LOCK.stat().st_ino:
                return lock
        except FileNotFoundError:
            pass
        os.close(lock)
