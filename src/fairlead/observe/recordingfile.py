"""The file of a recording: frames of a length, a checksum and a record, appended as they come.

Written on a thread. Two files at most, FILE and FILE.1, each of half the size that is allowed. A file begins with a
state: where the newer one is full, the recorder is asked for one, and the file is turned over when it comes. A daemon
that is killed leaves a part of a frame: the next one cuts it off. What a reader finds may be torn, damaged or hostile.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from fairlead.kit import files
from fairlead.observe.recording import Record, State, decode, encode

MAGIC = b"fairlead recording 1\n"
FRAME_MAX_BYTES = 20 * 2**20  # compressed
FILE_MAX_BYTES = 2**30  # of one file that is read, whoever wrote it
WAITING_MAX = 8192  # records that wait for the disk
WEIGHT_MAX = 200_000  # ids in them: an id is some tens of bytes
BATCH_S = 0.1
DRAIN_S = 2.0
TURN = 0.4  # of the size that is allowed: here a file is full, and goes on only until a state comes
_HEAD = struct.Struct("<II")  # length and checksum of a frame

Make = Callable[[], Record]  # made on the thread: encoding a request takes longer than answering it


class RecordingFile:
    """`problem`: why records are not on the disk; empty when all is well. `max_bytes`: of both files."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.problem = ""
        self.wants_state = True  # the next record should be one
        self.broken = True  # until then, no record is of use
        self.lost = 0  # records since the last state
        self._path, self._most, self._turn = path, max_bytes // 2, int(max_bytes * TURN)
        self._queue: deque[tuple[Make, int]] = deque()
        self._put_weight = self._done_weight = 0  # each is counted by one thread only
        self._stirred, self._stopping = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._size = 0  # of the file; 0: it is not open
        self._fd = -1

    def put(self, make: Make, *, is_state: bool = False, weight: int = 0) -> None:
        """Returns at once. `weight`: of ids that are kept until it is written."""
        if self.broken and not is_state:
            self.lost += 1
            return
        if len(self._queue) >= WAITING_MAX or self._put_weight - self._done_weight > WEIGHT_MAX:
            self._break()
            self.problem = f"{self._path}: the disk is too slow, and records are left out. Look at the disk"
            return
        if is_state:
            self.wants_state = self.broken = False
            self.lost = 0
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="fairlead-recorder", daemon=True)
            self._thread.start()
        self._put_weight += weight
        self._queue.append((make, weight))
        if not self._stirred.is_set():
            self._stirred.set()

    @property
    def has_room(self) -> bool:
        waiting = self._put_weight - self._done_weight
        return len(self._queue) < WAITING_MAX // 2 and waiting <= WEIGHT_MAX // 2

    def close(self) -> None:
        """Never waits for long: a disk that hangs must not hold up an exit."""
        if self._thread is not None:
            self._stopping.set()
            self._stirred.set()
            self._thread.join(DRAIN_S)
            self._thread = None

    def _break(self) -> None:
        self.lost += 1
        self.wants_state = self.broken = True

    def _work(self) -> None:
        while True:
            self._stirred.wait()
            stopping = self._stopping.wait(BATCH_S)
            self._stirred.clear()
            try:
                self._write_all()
                if not self.broken:
                    self.problem = ""
            except OSError as error:
                while self._queue:
                    self._done_weight += self._queue.popleft()[1]
                self._close()
                self._break()
                self.problem = (
                    f"{self._path}: {error.strerror or error}. Nothing is recorded: make room, or make it writable"
                )
            except Exception as error:  # noqa: BLE001 - a record that cannot be written must not end the thread
                self._break()
                self.problem = f"{self._path}: a record is left out, which is a defect: {type(error).__name__}: {error}"
            if stopping and not self._queue:
                self._close()
                return

    def _write_all(self) -> None:
        while self._queue:
            make, weight = self._queue.popleft()
            self._done_weight += weight
            record = make()
            content = encode(record)
            frame = _HEAD.pack(len(content), zlib.crc32(content)) + content
            if isinstance(record, State):
                self._begin(len(frame))
            if self._fd < 0 or self._size + len(frame) > self._most or len(content) > FRAME_MAX_BYTES:
                self._break()
                continue
            left = memoryview(frame)
            while left:
                left = left[os.write(self._fd, left) :]
            self._size += len(frame)
            if self._size > self._turn:
                self.wants_state = True

    def _begin(self, size: int) -> None:
        """Where a state is written: in the file that there is, or in a new one if that would be full."""
        if self._fd < 0:
            self._fd, self._size = self._open()
        if self._size + size > self._turn and self._size > len(MAGIC):
            self._close()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._fd, self._size = self._open()

    def _open(self) -> tuple[int, int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o600)
        try:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode) and found.st_size == 0:
                os.write(fd, MAGIC)
                return fd, len(MAGIC)
            end = _good_end(fd, found)
            os.ftruncate(fd, end)  # what a daemon that was killed has left
            os.lseek(fd, end, os.SEEK_SET)
        except BaseException:
            os.close(fd)
            raise
        return fd, end

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size = -1, 0


def _good_end(fd: int, found: os.stat_result) -> int:
    """Where the last whole frame ends. OSError for a file that is no recording, and must stay as it is."""
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"it is {files.kind_of(found.st_mode)}")
    size = found.st_size
    if os.pread(fd, len(MAGIC), 0) != MAGIC:
        raise OSError(errno.EEXIST, "it is there, and no recording. Name another file")
    end = len(MAGIC)
    while len(head := os.pread(fd, _HEAD.size, end)) == _HEAD.size:
        length, checksum = _HEAD.unpack(head)
        after = end + _HEAD.size + length
        if length > FRAME_MAX_BYTES or after > size:
            break
        if after == size and zlib.crc32(os.pread(fd, length, end + _HEAD.size)) != checksum:
            break
        end = after
    return end


# --- Reading ----------------------------------------------------------------------------------------------------------


def files_of(path: Path) -> list[Path]:
    """The files of a recording, the older first. FileNotFoundError where there is none."""
    older = path.with_name(f"{path.name}.1")
    found = [each for each in (older, path) if each.exists()]
    if not found:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", str(path))
    return found


def read(path: Path, notes: list[str]) -> Iterator[Record]:
    """The records of one file. OSError if it cannot be read or is no recording; `notes`: where it ends early."""
    files.check(path, FILE_MAX_BYTES)
    with path.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise OSError(errno.EINVAL, "it is no recording of fairlead, or of another version", str(path))
        at = len(MAGIC)
        while head := stream.read(_HEAD.size):
            why = ""
            content = b""
            length, checksum = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, -1)
            if length > FRAME_MAX_BYTES:
                why = f"a record of {length:,} bytes is more than {FRAME_MAX_BYTES:,}"
            elif checksum < 0 or len(content := stream.read(length)) < length:
                why = "the last record is torn"
            elif zlib.crc32(content) != checksum:
                why = "a record is damaged"
            if why:
                notes.append(f"{path}: byte {at:,}: {why}. What follows is left out")
                return
            try:
                record = decode(content)
            except ValueError as error:
                notes.append(f"{path}: byte {at:,}: {error}. What follows is left out")
                return
            at += _HEAD.size + length
            yield record
