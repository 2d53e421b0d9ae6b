"""Small files of the kernel, read in one go: no more of one than it may have, and no wait for what never comes.

A machine with 64 partitions has 4,000 files of links. Each is one open, one read and one close; what is no regular file
reads as garbage or is an error, and neither blocks.
"""

from __future__ import annotations

import errno
import os

MAX_BYTES = 4096  # the kernel shows no more than a page of a file in sysfs
NAMES_MAX = 4096  # in one directory

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def read(path: str) -> bytes:
    """OSError for what cannot be read, or is larger than the kernel would make it."""
    fd = os.open(path, _FLAGS)
    try:
        content = os.read(fd, MAX_BYTES + 1)
    finally:
        os.close(fd)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MAX_BYTES:,} bytes", path)
    return content


def text(path: str) -> str:
    """As text without blanks around it; empty where there is no such file. OSError as above."""
    try:
        return read(path).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


def names(directory: str) -> list[str]:
    """Empty where there is no such directory. OSError for one that cannot be listed, or holds too much."""
    try:
        found = os.listdir(directory)  # noqa: PTH208 - names are enough
    except FileNotFoundError:
        return []
    if len(found) > NAMES_MAX:
        raise OSError(errno.E2BIG, f"it has {len(found):,} entries, and {NAMES_MAX:,} are the limit", directory)
    return found


def numbered(directory: str) -> list[int]:
    """The entries that are numbers, in their order."""
    return sorted(int(name) for name in names(directory) if is_number(name))


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20


def why(error: OSError) -> str:
    return error.strerror or str(error)
