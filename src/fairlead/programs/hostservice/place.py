"""Puts the files of a service below a root directory, and takes them away: only those that it wrote itself.

A file of ours begins with a line that holds the digest of the rest, and an executable ends with its own comment. So
each file says whether it is ours, ours and edited since, or another's, and nothing else is kept about it.
"""

from __future__ import annotations

import enum
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from fairlead.kit import files
from fairlead.model.errors import HostError

_MARK = re.compile(rb"# Written by `fairlead install-host`\. sha256 of what follows: ([0-9a-f]{64})\n")
ARCHIVE_END = b"fairlead one-file"  # of fairlead.pyz: see deploy/onefile/build.py
ARCHIVE_MAX = 64 * 2**20


class File(Struct, frozen=True):
    path: str  # on the host
    content: bytes  # with its mark
    mode: int = 0o644
    editable: bool = False  # for the administrator: kept when it was edited, or was there before


class Link(Struct, frozen=True):
    path: str
    target: str


class Whose(enum.Enum):
    ABSENT = "absent"
    OURS = "ours"
    EDITED = "edited since"
    FOREIGN = "not written by install-host"


def mark(text: str) -> bytes:
    body = text.encode()
    return b"# Written by `fairlead install-host`. sha256 of what follows: %s\n" % _digest(body) + body


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def without_mark(content: bytes) -> bytes:
    found = _MARK.match(content)
    return content[found.end() :] if found else content


class Place:
    """A root directory: that of the host, or of an image that is being made."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise HostError(f"{root}: there is no such directory. Choose another with --root")
        self.root = root.resolve()

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def whose(self, path: str) -> Whose:
        there = self.at(path)
        try:
            mode = there.lstat().st_mode
            if not stat.S_ISREG(mode):
                return Whose.FOREIGN
            content = files.read_bytes(there, ARCHIVE_MAX)
        except (FileNotFoundError, NotADirectoryError):
            return Whose.ABSENT
        except OSError as error:
            raise HostError(f"{there}: {error.strerror or error}") from error
        if content.endswith(ARCHIVE_END):
            return Whose.OURS
        found = _MARK.match(content)
        if found is None:
            return Whose.FOREIGN
        return Whose.OURS if _digest(content[found.end() :]) == found[1] else Whose.EDITED

    def read(self, path: str) -> str | None:
        """Without the mark. None: there is no such file."""
        try:
            return without_mark(files.read_bytes(self.at(path))).decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise HostError(f"{self.at(path)}: {getattr(error, 'strerror', None) or error}") from error

    # --- Putting --------------------------------------------------------------------------------------------------

    def put(self, wanted: Sequence[File], links: Sequence[Link], *, force: bool) -> list[str]:
        """All of them, or an error and none. Answers with the paths that changed."""
        due = [file for file in wanted if self._must_write(file, force=force)]
        missing = [link for link in links if not self._is_there(link, force=force)]
        changed = []
        for file in due:
            there = self.at(file.path)
            try:
                self._enter(there.parent)
                files.replace(there, file.content, file.mode)
            except OSError as error:
                raise self._refused(there, error) from error
            changed.append(file.path)
        for link in missing:
            there = self.at(link.path)
            try:
                self._enter(there.parent)
                there.unlink(missing_ok=True)
                there.symlink_to(link.target)
            except OSError as error:
                raise self._refused(there, error) from error
            changed.append(link.path)
        return changed

    def _must_write(self, file: File, *, force: bool) -> bool:
        there, whose = self.at(file.path), self.whose(file.path)
        if whose is Whose.ABSENT:
            return True
        if there.is_dir() and not there.is_symlink():
            raise HostError(f"{there} is a directory, and a file must be there. Move it away")
        with suppress(OSError):
            if stat.S_ISREG(there.lstat().st_mode) and there.read_bytes() == file.content:
                return stat.S_IMODE(there.stat().st_mode) != file.mode
        if force or whose is Whose.OURS:
            return True
        if file.editable and whose is Whose.EDITED:
            return False
        raise HostError(f"{there} is there already, {whose.value}. Move it away, or overwrite it with --force")

    def _is_there(self, link: Link, *, force: bool) -> bool:
        there = self.at(link.path)
        if there.is_symlink() and str(there.readlink()) == link.target:
            return True
        if (there.is_symlink() or there.exists()) and (there.is_dir() or not force):
            raise HostError(
                f"{there} is there already, {Whose.FOREIGN.value}. Move it away, or overwrite it with --force"
            )
        return False

    def _enter(self, directory: Path) -> None:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not directory.resolve().is_relative_to(self.root):
            raise HostError(
                f"{directory} leads out of {self.root}, to {directory.resolve()}. Make it a directory there"
            )

    # --- Taking away ----------------------------------------------------------------------------------------------

    def remove(self, paths: Sequence[str], links: Sequence[Link], *, force: bool) -> list[str]:
        """Those that are there. What was edited, or is another's, is named before anything is removed."""
        there = {path: whose for path in paths if (whose := self.whose(path)) is not Whose.ABSENT}
        kept = [f"{self.at(path)} ({whose.value})" for path, whose in there.items() if whose is not Whose.OURS]
        if kept and not force:
            raise HostError(f"nothing was removed, because of: {', '.join(kept)}. Move them away, or use --force")
        removed = []
        mine = [link.path for link in links if self._points_there(link)]
        for path in (*mine, *there):
            try:
                self.at(path).unlink()
            except OSError as error:
                raise self._refused(self.at(path), error) from error
            removed.append(path)
        return removed

    def _points_there(self, link: Link) -> bool:
        there = self.at(link.path)
        return there.is_symlink() and str(there.readlink()) == link.target

    def remove_tree(self, path: str) -> None:
        there = self.at(path)
        if there.is_dir() and not there.is_symlink():
            shutil.rmtree(there, ignore_errors=True)

    def remove_empty(self, *paths: str) -> None:
        for path in paths:
            with suppress(OSError):  # others have something there
                self.at(path).rmdir()

    def _refused(self, path: Path, error: OSError) -> HostError:
        cure = "Run it as root" if os.geteuid() else "Choose another root with --root"
        return HostError(f"{path}: {error.strerror or error}. {cure}, or see what it would write with --print")
