"""Reads files that others write: regular files and /dev/null only, and no more of one than it may have. Replaces whole
files that others read.

Opening a FIFO waits for a writer, a device may act when it is opened, and /dev/zero never ends. The type is therefore
checked before the file is opened, and again on what was opened. Every refusal is an OSError whose `strerror` says
what is wrong in words.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 2**20  # a ConfigMap or a Secret holds no more
SMALL_BYTES = 64 * 1024  # a token, a file of sysfs or procfs

_NULL = os.makedev(1, 3)  # /dev/null. It reads as empty: the usual way to give no file, or to hide one

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFREG: "a regular file",
}


def read_bytes(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> bytes:
    """The whole content. Follows symbolic links, as a ConfigMap needs."""
    check(path, max_bytes)
    # Another file may take the name after the check: O_NONBLOCK keeps a FIFO from blocking.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _check(path, os.fstat(fd), max_bytes)
        return _read(fd, path, max_bytes)
    finally:
        os.close(fd)


def read_once(path: str, max_bytes: int = SMALL_BYTES) -> bytes:
    """A regular file that the kernel gives in one read, as it does in sysfs; no link (ELOOP). For many small files."""
    # Looked at when it is open: the path of a file in sysfs is long, and each look along it costs microseconds.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link", path) from None
        raise
    try:
        if not stat.S_ISREG(mode := os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, f"it is {kind_of(mode)}", path)
        content = os.read(fd, max_bytes + 1)
    finally:
        os.close(fd)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it has more than {max_bytes:,} bytes, which are the limit", path)
    return content


def check(path: str | os.PathLike[str], max_bytes: int | None = None) -> None:
    """Refuses what `read_bytes` would, for a file that a library reads itself."""
    try:
        _check(path, os.stat(path), max_bytes)  # noqa: PTH116 - a Path for it is waste
    except ValueError:
        raise OSError(errno.EINVAL, "the path holds a NUL byte", path) from None


def read_text(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES, *, errors: str = "strict") -> str:
    """As text in UTF-8, with or without a byte order mark. What is no such text is an OSError too."""
    content = read_bytes(path, max_bytes)
    try:
        return content.decode(errors=errors).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        wrong = f"it is not UTF-8 text: line {line} holds the byte 0x{content[error.start]:02x}"
        raise OSError(errno.EILSEQ, wrong, path) from None


def replace(path: Path, content: bytes, mode: int = 0o644, *, sync: bool = False) -> None:
    """Writes a file beside its place and moves it there: a reader sees the old content or the new, never a part.

    `sync`: it is on the disk when this returns, also after a crash of the host.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.unlink(missing_ok=True)
        with fresh.open("xb") as file:  # never through a link that lies in wait there
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        fresh.chmod(mode)
        fresh.replace(path)
        if sync:
            _sync_directory(path.parent)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_own(path: Path, max_bytes: int) -> bytes:
    """A file that only this user can have written. ValueError for any other; a link is not followed."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"it is {kind_of(found.st_mode)}")
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise ValueError("another user may have written it")
    return read_bytes(path, max_bytes)


def kind_of(mode: int) -> str:
    """What a file is, in words: a FIFO, a directory."""
    return _KINDS.get(stat.S_IFMT(mode), "no regular file")


def _check(path: str | os.PathLike[str], found: os.stat_result, max_bytes: int | None) -> None:
    if max_bytes is not None and stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL:
        return
    if not stat.S_ISREG(found.st_mode):
        code = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
        raise OSError(code, f"it is {kind_of(found.st_mode)}. Give a regular file", path)
    if max_bytes is not None and found.st_size > max_bytes:
        raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes, and {max_bytes:,} are the limit", path)


def _read(fd: int, path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """To the end. The size that the kernel gives says nothing in procfs, and a file may grow."""
    chunks = []
    left = max_bytes + 1
    while left and (chunk := os.read(fd, min(left, 2**18))):
        chunks.append(chunk)
        left -= len(chunk)
    if not left:
        raise OSError(errno.EFBIG, f"it has more than {max_bytes:,} bytes, which are the limit", path)
    return b"".join(chunks)
