"""Files below a root: of the host, mounted somewhere in a container, or of a directory that a test has made.

Links are followed inside the root, so that no path leads out of it: an absolute link means a file of that root, not one
of this container. Paths in and out are the root's own. Knows nothing of what is looked for.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from typing import TypeAlias

from fairlead.kit import files

LINKS_MAX = 40  # as in the kernel: more is a loop
NAMES_MAX = 2**16  # that a pattern may lead through
WILDCARD = re.compile(r"[*?\[]")
_DIGITS = re.compile(r"(\d+)")
_UP = frozenset({"", ".", ".."})  # no names of a file
# Nothing is there; the last: a file of sysfs whose device has just left.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV})

Failed: TypeAlias = Callable[[str, OSError], None]  # told of a path and of why nobody knows what is there


def pass_over(path: str, error: OSError) -> None:
    """For callers to whom what cannot be read is as good as nothing."""


def is_gone(error: OSError) -> bool:
    return error.errno in _GONE


class HostRoot:
    __slots__ = ("_root",)

    def __init__(self, root: str = "/") -> None:
        self._root = os.path.realpath(root).rstrip("/")

    def follow(self, path: str, failed: Failed = pass_over) -> tuple[str, bool]:
        """The path without links, and whether all of it is there. Empty for a loop."""
        steps = [part for part in reversed(path.split("/")) if part]
        done: list[str] = []
        there, links = True, 0
        while steps:
            part = steps.pop()
            if part in {".", ".."}:
                del done[len(done) - (part == "..") :]  # the root's parent is the root
                continue
            here = f"{self._root}/{'/'.join([*done, part])}"
            try:
                target = os.readlink(here)  # noqa: PTH115 - text
            except OSError as error:
                if error.errno != errno.EINVAL and not is_gone(error):  # EINVAL: it is no link
                    failed(path, error)
                there = there and os.path.lexists(here)
                done.append(part)
                continue
            links += 1
            if links > LINKS_MAX:
                failed(path, OSError(errno.ELOOP, os.strerror(errno.ELOOP)))
                return "", False
            if target.startswith("/"):
                done.clear()
            steps.extend(step for step in reversed(target.split("/")) if step)
        return "/" + "/".join(done), there

    def real(self, path: str, failed: Failed = pass_over) -> str | None:
        """The path without links, or None where nothing is."""
        if (quick := self._asked(path)) is not None:
            return quick
        above, _, name = path.rpartition("/")
        if name not in _UP and (directory := self._asked(above)) is not None and self._lacks(directory, name):
            return None
        found, there = self.follow(path, failed)
        return found if there else None

    def _asked(self, path: str) -> str | None:
        """The same from the kernel, at a tenth of the price. None where links may lead out of the root."""
        try:
            fd = os.open(self._root + path, os.O_PATH | os.O_CLOEXEC)  # opens nothing: no device acts
        except (OSError, ValueError):
            return None
        try:
            found = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - text
        except OSError:
            return None
        finally:
            os.close(fd)
        inside = found.startswith(f"{self._root}/") and ".." not in path and not found.endswith(" (deleted)")
        return found[len(self._root) :] if inside else None

    def _lacks(self, directory: str, name: str) -> bool:
        """What is often asked for and rarely there must not cost a look at every directory above it."""
        try:
            os.lstat(f"{self._root}{directory}/{name}")
        except OSError as error:
            return is_gone(error)
        return False

    def stat(self, real: str, failed: Failed = pass_over) -> os.stat_result | None:
        """Of a path without links. Does not follow: a link put there since is not what was meant."""
        try:
            return os.lstat(self._root + real)
        except OSError as error:
            _tell(real, error, failed)
            return None

    def file_at(self, path: str) -> tuple[int, ...] | None:
        """Which file stands at a path, and its last change. The kernel follows the links, and may leave the root."""
        try:
            found = os.stat(self._root + path)  # noqa: PTH116 - a Path for it is waste
        except (OSError, ValueError):
            return None
        return _file(found)

    def is_inside(self, file: tuple[int, ...], real: str) -> bool:
        """Whether it is the one at a path without links."""
        try:
            return _file(os.lstat(self._root + real)) == file
        except OSError:
            return False

    def read(self, path: str, max_bytes: int = files.SMALL_BYTES, failed: Failed = pass_over) -> str | None:
        """A file's text without blanks around it, or None where it cannot be read."""
        real = self.real(path, failed)
        return None if real is None else self.read_at(real, max_bytes, failed)

    def read_at(self, real: str, max_bytes: int = files.SMALL_BYTES, failed: Failed = pass_over) -> str | None:
        """The same, of a path without links."""
        try:
            return files.read_text(self.outside(real), max_bytes, errors="replace").strip()
        except OSError as error:
            _tell(real, error, failed)
            return None

    def names(self, directory: str, failed: Failed = pass_over) -> list[str]:
        """What is in a directory, by name; nothing where it cannot be listed."""
        real = self.real(directory, failed)  # of a loop, None: without a path it would be the root that is listed
        return [] if real is None else self.names_at(real, failed)

    def names_at(self, real: str, failed: Failed = pass_over) -> list[str]:
        """The same, of a path without links."""
        try:
            return sorted(os.listdir(self.outside(real)))  # noqa: PTH208 - names are enough
        except OSError as error:
            _tell(real, error, failed)
            return []

    def directories_at(self, real: str, failed: Failed = pass_over) -> list[str]:
        """The directories in one without links, by name; links to directories are none."""
        try:
            with os.scandir(self.outside(real)) as found:
                return sorted(entry.name for entry in found if entry.is_dir(follow_symlinks=False))
        except OSError as error:
            _tell(real, error, failed)
            return []

    def glob(self, pattern: str, failed: Failed = pass_over) -> list[str]:
        """The paths that match, numbers in the order of numbers. They may be links; `real` says where to.

        OverflowError for a pattern that leads through too many directories and files.
        """
        from fnmatch import filter as matching  # noqa: PLC0415 - few roots are searched, and none with GPUs alone

        found, left = [""], NAMES_MAX
        *steps, last = [part for part in pattern.split("/") if part]
        for part in (*steps, last):
            if not WILDCARD.search(part):
                found = [f"{path}/{part}" for path in found]
                continue
            matches = []
            for directory in found:
                names = self.names(directory or "/", failed)
                left -= len(names)
                if left < 0:
                    raise OverflowError(f"{pattern} leads through more than {NAMES_MAX:,} names")
                shown = names if part[0] == "." else [name for name in names if name[0] != "."]
                matches += [f"{directory}/{name}" for name in matching(shown, part)]
            found = matches
        there = found if WILDCARD.search(last) else [path for path in found if self.real(path, failed) is not None]
        return sorted(there, key=_natural)

    def outside(self, path: str) -> str:
        """The path as this process opens it."""
        return self._root + path


def _file(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_mode, found.st_rdev, found.st_ctime_ns


def _tell(path: str, error: OSError, failed: Failed) -> None:
    if not is_gone(error):
        failed(path, error)


def _natural(text: str) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in _DIGITS.split(text)]
