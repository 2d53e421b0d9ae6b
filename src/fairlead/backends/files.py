"""Reads files that others write: regular files and /dev/null only, and no more of one than it may have.

Opening a FIFO waits for a writer, a device may act when it is opened, and /dev/zero never ends. The type is therefore
checked before the file is opened, and again on what was opened. Every refusal is an OSError whose `strerror` says
what is wrong in words.
"""

from __future__ import annotations

import errno
import os
import stat

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
