"""Follows a log file that another process writes, and that may not be there yet, be cut, or be made anew."""

from __future__ import annotations

import os
from pathlib import Path

from fairlead.kit import files

MOST = 1024 * 1024  # at a time


class Tail:
    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file = (0, 0)  # which one we read: device and inode
        self._at = 0

    def read_new(self) -> str:
        """What was added since the last time."""
        try:
            files.check(self._path)
            with self._path.open("rb") as file:
                facts = os.fstat(file.fileno())
                which = (facts.st_dev, facts.st_ino)
                if which != self._file or facts.st_size < self._at:
                    self._file, self._at = which, 0
                file.seek(self._at)
                added = file.read(MOST)
        except OSError:
            return ""
        whole = added.rfind(b"\n") + 1 if len(added) < MOST else len(added)  # a line comes when it is complete
        self._at += whole
        return added[:whole].decode(errors="replace")
