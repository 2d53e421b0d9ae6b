"""The SONAME of a shared library, out of its ELF file: under this name programs ask for it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

from fairlead.kit import files

PT_LOAD, PT_DYNAMIC = 1, 2
DT_STRTAB, DT_SONAME = 5, 14
LONGEST = 256  # a file name has at most this many bytes
MOST = 64 * 1024  # no dynamic section and no header table of a library is larger


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def read_soname(path: Path) -> str | None:
    """Empty for a library without one; None for what is no library at all."""
    try:
        files.check(path)  # a FIFO would wait for a writer
        with path.open("rb") as file:
            return _read(file)
    except (OSError, struct.error, ValueError):
        return None


def _read(file: BinaryIO) -> str:
    head = file.read(64).ljust(64, b"\0")
    if head[:4] != b"\x7fELF" or head[4] not in {1, 2} or head[5] not in {1, 2}:
        raise ValueError("not an ELF file")
    wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
    at, size, count = struct.unpack_from(order + ("Q14xHH" if wide else "I10xHH"), head, 32 if wide else 28)
    table = _slice(file, at, size * count)
    segments = [_segment(table[i * size : (i + 1) * size], order, wide=wide) for i in range(count)]
    loads = [segment for segment in segments if segment.kind == PT_LOAD]
    for dynamic in (segment for segment in segments if segment.kind == PT_DYNAMIC):
        pairs = dict(struct.iter_unpack(order + ("qQ" if wide else "iI"), _slice(file, dynamic.offset, dynamic.size)))
        if DT_SONAME not in pairs:
            return ""
        address = pairs[DT_STRTAB]
        for load in loads:
            if load.address <= address < load.address + load.size:
                file.seek(load.offset + address - load.address + pairs[DT_SONAME])
                return file.read(LONGEST).split(b"\0", 1)[0].decode()
    return ""


def _segment(entry: bytes, order: str, *, wide: bool) -> _Segment:
    if wide:
        kind, _, offset, address, _, size = struct.unpack_from(order + "IIQQQQ", entry)
    else:
        kind, offset, address, _, size = struct.unpack_from(order + "IIIII", entry)
    return _Segment(kind, offset, address, size)


def _slice(file: BinaryIO, at: int, size: int) -> bytes:
    if size > MOST:
        raise ValueError("not the size of a table")
    file.seek(at)
    return file.read(size)
