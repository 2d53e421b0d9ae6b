"""The file of a recording: frames of a length, a checksum and some records, appended as they come.

Written on a thread. Two files at most, FILE and FILE.1, each of half the size that is allowed. A file begins with a
state: where the newer one is full, the recorder is asked for one, and the file is turned over when it comes. A daemon
that is killed leaves a part of a frame: the next one cuts it off. One daemon at a time writes to a file. What a reader
finds may be torn, damaged or hostile.
"""

from __future__ import annotations

import errno
import fcntl
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
WEIGHT_MAX = 500_000  # ids in them: an id is some tens of bytes
BATCH_S = 0.04
BATCH_RECORDS, BATCH_WEIGHT = 64, 20_000  # in one frame, about
DRAIN_S = 2.0
TURN = 0.4  # of the size that is allowed: here a file is full, and goes on only until a state comes
_HEAD = struct.Struct("<II")  # length and checksum of a frame

# Made on the thread: encoding a request takes longer than answering it.
Make = Callable[[], Record]
MakeState = Callable[[int], Record]  # of the number of records that are missing before it


class RecordingFile:
    """`problem`: why records are not on the disk; empty when all is well. `max_bytes`: of both files."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.problem = ""
        self.wants_state = True  # the next record should be one
        self.broken = True  # until then, no record is of use
        self._lost = 0  # records since the last state
        self._path, self._most, self._turn = path, max_bytes // 2, int(max_bytes * TURN)
        self._queue: deque[tuple[Make, int]] = deque()
        self._put_weight = self._done_weight = 0  # each is counted by one thread only
        self._stirred, self._hurry = threading.Event(), threading.Event()
        self._stirring = False  # the thread has been told that there are records
        self._stopping = self._released = False
        self._thread: threading.Thread | None = None
        self._skipping = False  # the thread has left a record out, and waits for a state
        self._size = 0  # of the file
        self._fd = -1

    def put(self, make: Make, weight: int = 0) -> None:
        """Returns at once, and never raises. `weight`: of ids that are kept until it is written."""
        if self.broken or self._released:
            self._lost += 1
            return
        waiting = self._put_weight - self._done_weight
        if len(self._queue) >= WAITING_MAX or waiting > WEIGHT_MAX:
            self.fail(f"{self._path}: the disk is too slow, and records are left out. Look at the disk")
            return
        if self._thread is None and not self._start():
            return
        self._put_weight += weight
        self._queue.append((make, weight))
        if waiting + weight > WEIGHT_MAX // 4:
            self._hurry.set()
        if not self._stirring:
            self._stirring = True
            self._stirred.set()

    def put_state(self, make: MakeState) -> None:
        if self._released:
            return
        lost, self._lost = self._lost, 0
        self.wants_state = self.broken = False
        self.put(lambda: make(lost))

    @property
    def has_room(self) -> bool:
        waiting = self._put_weight - self._done_weight
        return len(self._queue) < WAITING_MAX // 2 and waiting <= WEIGHT_MAX // 2

    def release(self) -> None:
        """Another daemon may write to the file from now on."""
        self._released = True
        self.close()
        self.wants_state = self.broken = True

    def resume(self) -> None:
        self._released = False

    def close(self) -> None:
        """Never waits for long: a disk that hangs must not hold up an exit."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stopping = True
            self._hurry.set()
            self._stirred.set()
            thread.join(DRAIN_S)
            self._stopping = False

    def _start(self) -> bool:
        thread = threading.Thread(target=self._work, name="fairlead-recorder", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads
            self.fail(f"{self._path}: {error}. Nothing is recorded: raise the limit of processes")
            return False
        self._thread, self._stirring = thread, False
        return True

    def fail(self, problem: str) -> None:
        """Records are missing from here on, until a state comes."""
        self._lost += 1
        self.wants_state = self.broken = True
        self.problem = problem

    # --- The thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            self._stirred.wait()
            self._hurry.wait(BATCH_S)
            self._hurry.clear()
            self._stirred.clear()
            self._stirring = False  # what was put before this is written below; what comes after it stirs again
            stopping = self._stopping
            self._write_all()
            if stopping:
                self._close()
                return

    def _write_all(self) -> None:
        """What has gathered goes into few frames: to pack and write each record alone would cost the loop its time."""
        while self._queue:
            records, left = list[Record](), BATCH_WEIGHT
            while self._queue and len(records) < BATCH_RECORDS and left > 0:
                make, weight = self._queue.popleft()
                self._done_weight += weight
                left -= weight
                record = self._made(make)
                if isinstance(record, State):
                    self._put_frame(records)
                    self._put_frame([record])
                    records = []
                elif record is not None:
                    records.append(record)
            self._put_frame(records)

    def _made(self, make: Make) -> Record | None:
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - a record that cannot be made must not end the thread
            self._leave_out(_defect(self._path, error))
            return None

    def _put_frame(self, records: list[Record]) -> None:
        if not records:
            return
        try:
            self._write(records)
        except OSError as error:
            self._close()
            self._leave_out(f"{self._path}: {error.strerror or error}. Nothing is recorded{_cure(error)}")
        except Exception as error:  # noqa: BLE001 - as above
            self._leave_out(_defect(self._path, error))

    def _leave_out(self, problem: str) -> None:
        self._skipping = True
        self.fail(problem)

    def _write(self, records: list[Record]) -> None:
        is_state = isinstance(records[0], State)
        if self._skipping and not is_state:
            self._lost += len(records)
            return
        content = encode(records)
        frame = _HEAD.pack(len(content), zlib.crc32(content)) + content
        if is_state:
            self._begin(len(frame))
        if self._fd < 0:
            self._leave_out(self.problem)
            return
        if self._size + len(frame) > self._most or len(content) > FRAME_MAX_BYTES:
            size = f"{len(frame):,} bytes of records do not fit, with {self._size:,} before them"
            self._leave_out(f"{self._path}: {size}. Give a larger record.maxSize")
            return
        left = memoryview(frame)
        while left:
            left = left[os.write(self._fd, left) :]
        self._size += len(frame)
        self._skipping = False
        if self._size > self._turn:
            self.wants_state = True
        if not self.broken:
            self.problem = ""

    def _begin(self, size: int) -> None:
        """Where a state is written: in the file that there is, or in a new one if that would be full."""
        if self._fd < 0:
            self._fd, self._size = self._open()
        if self._size + size > self._turn and self._size > len(MAGIC):
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._close()
            self._fd, self._size = self._open()

    def _open(self) -> tuple[int, int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o600)
        try:
            _lock(fd)  # before it is looked at: another daemon may begin it just now
            is_new = _is_begun(os.pread(fd, len(MAGIC), 0))
            end = len(MAGIC) if is_new else _good_end(fd)
            os.fchmod(fd, 0o600)
            if is_new:
                os.pwrite(fd, MAGIC, 0)
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


def _defect(path: Path, error: Exception) -> str:
    return f"{path}: records are left out, which is a defect: {type(error).__name__}: {error}"


def _lock(fd: int) -> None:
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"it is {files.kind_of(mode)}")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "another daemon records there") from None


def _is_begun(opening: bytes) -> bool:
    """A recording that was made and has nothing yet: by a daemon that is at it, or was killed there."""
    return len(opening) < len(MAGIC) and MAGIC.startswith(opening)


def _good_end(fd: int) -> int:
    """Where the last whole frame ends. OSError for a file that is no recording, and must stay as it is."""
    size = os.fstat(fd).st_size
    if os.pread(fd, len(MAGIC), 0) != MAGIC:
        raise OSError(errno.EEXIST, "it is there, and no recording")
    end = len(MAGIC)
    while len(head := os.pread(fd, _HEAD.size, end)) == _HEAD.size:
        length, checksum = _HEAD.unpack(head)
        after = end + _HEAD.size + length
        if not 0 < length <= FRAME_MAX_BYTES or after > size:  # a host that lost power leaves zeros
            break
        if after == size and zlib.crc32(os.pread(fd, length, end + _HEAD.size)) != checksum:
            break
        end = after
    return end


def _cure(error: OSError) -> str:
    match error.errno:
        case errno.EEXIST | errno.EINVAL | errno.ELOOP | errno.EISDIR:
            return ": name another file"
        case errno.ENOENT | errno.ENOTDIR:
            return ": make its directory"
        case errno.EBUSY:
            return " by this one until it ends"
        case errno.ENOSPC | errno.EDQUOT:
            return ": make room"
        case _:
            return ": make it writable"


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
        opening = stream.read(len(MAGIC))
        if _is_begun(opening):
            return
        if opening != MAGIC:
            raise OSError(errno.EINVAL, "it is no recording of fairlead, or of another version", str(path))
        at = len(MAGIC)
        while head := stream.read(_HEAD.size):
            why = ""
            content = b""
            length, checksum = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, -1)
            if length > FRAME_MAX_BYTES:
                why = f"a record of {length:,} bytes is more than {FRAME_MAX_BYTES:,}"
            elif not length or checksum < 0 or len(content := stream.read(length)) < length:
                why = "the last record is torn"
            elif zlib.crc32(content) != checksum:
                why = "a record is damaged"
            if why:
                notes.append(f"{path}: byte {at:,}: {why}. What follows is left out")
                return
            try:
                records = decode(content)
            except ValueError as error:
                notes.append(f"{path}: byte {at:,}: {error}. What follows is left out")
                return
            at += _HEAD.size + length
            yield from records
