"""The journal on disk: facts as lines of JSON, in a few files of bounded size. One daemon's are NAME.journal,
NAME.journal.1 and so on, the newest first.

Owns the files, on both ends. They are written on a thread: a disk that is slow or full costs facts, and never a call of
the kubelet. A file is opened for each write: one that was removed meanwhile comes back, and two daemons may write while
one takes over from the other. What a reader finds there may be torn, damaged or hostile.
"""

from __future__ import annotations

import errno
import math
import os
import queue
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from fairlead.kit import files
from fairlead.kit.text import to_json
from fairlead.observe.journal import Fact, row_of

FILE_MAX_BYTES = 2**20
FILES = 8
LINE_MAX_BYTES = 32 * 1024
CHUNK_BYTES = 128 * 1024  # written at once
WAITING_MAX = 1000  # batches of facts that wait for the disk
READ_MAX_BYTES = 4 * FILE_MAX_BYTES  # of one file, whoever wrote it
READ_FILES_MAX = 128
DRAIN_S = 2.0
SUFFIX = ".journal"
_NAME = re.compile(r"[\w.-]+\.journal(\.[1-9])?", re.ASCII)

Row = Mapping[str, Any]  # a fact as `row_of` shows it


class JournalFile:
    """`problem`: why facts are not on the disk; empty when all is well."""

    def __init__(self, path: Path, max_bytes: int = FILE_MAX_BYTES, count: int = FILES) -> None:
        self.problem = ""
        self._path, self._max_bytes, self._count = path, max_bytes, count
        self._queue: queue.Queue[Sequence[Fact] | None] = queue.Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None
        # Facts that are not on the disk: the caller counts some, the thread the others, and what it has told of.
        self._refused = self._failed = self._told = 0

    def put(self, facts: Sequence[Fact]) -> None:
        """Returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="fairlead-journal", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(facts)
        except queue.Full:
            self._refused += len(facts)
            self.problem = f"{self._path}: the disk is too slow, and facts are left out there. Look at the disk"

    def drain(self, timeout_s: float = DRAIN_S) -> bool:
        """Waits until all is written, for so long at most. Whether it is."""
        with self._queue.all_tasks_done:
            return self._queue.all_tasks_done.wait_for(lambda: not self._queue.unfinished_tasks, timeout_s)

    def close(self) -> None:
        """Never waits for long: a disk that hangs must not hold up an exit."""
        if self._thread is not None and self.drain():
            self._queue.put(None)
            self._thread.join(DRAIN_S)
            self._thread = None

    def _work(self) -> None:
        while (facts := self._queue.get()) is not None:
            try:
                lost = self._refused + self._failed
                if lost > self._told:
                    dropped = Fact(facts[0].seq, facts[0].at_s, "log-dropped", {"lines": lost - self._told})
                    facts = [dropped, *facts]
                for chunk in _chunks(facts):
                    self._append(chunk)
                self._told, self.problem = lost, ""
            except OSError as error:
                self._failed += sum(fact.kind != "log-dropped" for fact in facts)
                self.problem = (
                    f"{self._path}: {error.strerror or error}. Facts are not kept there: make room, or make it writable"
                )
            finally:
                self._queue.task_done()

    def _append(self, chunk: bytes) -> None:
        fd = self._open()
        try:
            size = os.fstat(fd).st_size
            if size and size + len(chunk) + 1 > self._max_bytes:
                os.close(fd)
                fd = -1
                self._rotate()
                fd = self._open()
                size = os.fstat(fd).st_size
            # A daemon that was killed, or a full disk, leaves a part of a line: the next one is not joined to it.
            if size and os.pread(fd, 1, size - 1) != b"\n":
                chunk = b"\n" + chunk
            left = memoryview(chunk)
            while left:
                left = left[os.write(fd, left) :]
        finally:
            if fd >= 0:
                os.close(fd)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o640)
        if not stat.S_ISREG(mode := os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, f"it is {files.kind_of(mode)}")
        return fd

    def _rotate(self) -> None:
        for number in range(self._count - 1, 0, -1):
            newer = _numbered(self._path, number - 1)
            with suppress(FileNotFoundError):
                newer.replace(_numbered(self._path, number))


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path


def _chunks(facts: Iterable[Fact]) -> Iterator[bytes]:
    chunk = b""
    for fact in facts:
        line = to_json(row_of(fact)) + b"\n"
        if len(line) > LINE_MAX_BYTES:
            line = to_json(row_of(Fact(fact.seq, fact.at_s, fact.kind, {"left_out": f"{len(line)} bytes"}))) + b"\n"
        if len(chunk) + len(line) > CHUNK_BYTES:
            yield chunk
            chunk = b""
        chunk += line
    if chunk:
        yield chunk


# --- Reading ----------------------------------------------------------------------------------------------------------


def read_journals(directory: Path, keep: Callable[[Row], bool], most: int) -> tuple[list[Row], list[str]]:
    """The newest facts that are to be kept, of all daemons, by time; and what could not be read.

    FileNotFoundError where there is no journal.
    """
    names = sorted(name for name in os.listdir(directory) if _NAME.fullmatch(name))  # noqa: PTH208 - names
    if not names:
        raise FileNotFoundError(errno.ENOENT, "it has no journal", directory)
    notes = [f"{directory}: {len(names)} journals; {READ_FILES_MAX} of them are read"] * (len(names) > READ_FILES_MAX)
    rows: list[Row] = []
    for name in names[:READ_FILES_MAX]:
        path = directory / name
        try:
            content = files.read_bytes(path, READ_MAX_BYTES)
        except FileNotFoundError:
            continue  # rotated just now
        except OSError as error:
            notes.append(f"{path}: {error.strerror or error}. It is left out")
            continue
        found, torn = _rows(content, keep)
        rows = sorted([*rows, *found], key=time_of)[-most:]
        if torn:
            notes.append(f"{path}: {torn} lines are torn or damaged, and left out")
    return rows, notes


def _rows(content: bytes, keep: Callable[[Row], bool]) -> tuple[list[Row], int]:
    rows: list[Row] = []
    torn = 0
    for line in content.split(b"\n"):
        try:
            row = msgspec.json.decode(line, type=dict[str, Any]) if line else None
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            row = {}
        if row is None:
            continue
        if not _is_fact(row):
            torn += 1
        elif keep(row):
            rows.append(row)
    return rows, torn


def _is_fact(row: Row) -> bool:
    at_s, seq = row.get("at_s"), row.get("seq")
    timed = isinstance(at_s, int | float) and not isinstance(at_s, bool) and math.isfinite(at_s) and 0 <= at_s < 1e11
    return timed and isinstance(seq, int) and isinstance(row.get("event"), str)


def time_of(row: Row) -> tuple[float, int]:
    return row["at_s"], row["seq"]


def is_about(row: Row, since_s: float, device: str, pod: str) -> bool:
    """Whether a fact is of that time or later and names the device and the pod, where one is given.

    A device by its id or the beginning of it; slots begin with it too. A pod by its name, with or without namespace.
    """
    if row["at_s"] < since_s:
        return False
    if device and not any(text.startswith(device) for text in _texts(row, "device", "devices", "slots")):
        return False
    return not pod or any(pod in {text, text.rpartition("/")[2]} for text in _texts(row, "pod", "rivals"))


def _texts(row: Row, *keys: str) -> Iterator[str]:
    for key in keys:
        value = row.get(key)
        yield from (str(one) for one in (value if isinstance(value, list) else [] if value is None else [value]))
