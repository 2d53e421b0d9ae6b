"""The host's files as seen below a root: links are followed inside the root, so that no path leads out of it.

In a container the host may be mounted at /host; in a test it is a temporary directory. Paths in and out are the host's.
"""

from __future__ import annotations

import glob
import os
import re

from fairlead.backends import files
from fairlead.backends.links import follow

_DIGITS = re.compile(r"(\d+)")


class HostRoot:
    __slots__ = ("_root",)

    def __init__(self, root: str = "/") -> None:
        self._root = os.path.realpath(root).rstrip("/")

    def real(self, path: str) -> str | None:
        """The path without links, or None where nothing is."""
        found, there = follow(self._root, path)
        return found if there else None

    def stat(self, real: str) -> os.stat_result | None:
        """Of a path that `real` gave. Does not follow: a link put there since is not what was meant."""
        try:
            return os.lstat(self._root + real)
        except OSError:
            return None

    def read(self, path: str) -> str:
        """A small file's text, empty where it cannot be read."""
        real = self.real(path)
        if real is None:
            return ""
        try:
            return files.read_text(self._root + real, files.SMALL_BYTES).strip()
        except OSError:
            return ""

    def glob(self, pattern: str) -> list[str]:
        """The paths that match, numbers in the order of numbers. They may be links; `real` says where to."""
        found = glob.glob(glob.escape(self._root) + pattern)  # noqa: PTH207 - Path.glob takes no absolute pattern
        return sorted((path[len(self._root) :] for path in found), key=_natural)

    def outside(self, path: str) -> str:
        """The path as this process opens it."""
        return self._root + path


def _natural(text: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in _DIGITS.split(text)]
