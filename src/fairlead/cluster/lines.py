"""A watch is one JSON object a line. Cuts a stream of bytes into lines, of a bounded size; without I/O."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.cluster.errors import MalformedResponse

LINE_MAX_BYTES = 16 * 2**20  # etcd takes objects of 1.5 MiB; JSON may need several times that


class LineSplitter:
    __slots__ = ("_most_bytes", "_parts", "_size")

    def __init__(self, most_bytes: int = LINE_MAX_BYTES) -> None:
        self._most_bytes = most_bytes
        # In parts, joined once: an object of megabytes comes in thousands of pieces.
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that are whole now, without their ends. Empty ones are left out."""
        *ended, rest = data.split(b"\n")
        for part in ended:
            line = self._join(part)
            if line.strip():
                yield line
        self._keep(rest)

    @property
    def pending(self) -> bool:
        return any(part.strip() for part in self._parts)

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._most_bytes:
            raise MalformedResponse(f"an event is larger than {self._most_bytes} bytes")
        if part:
            self._parts.append(part)

    def _join(self, part: bytes) -> bytes:
        self._keep(part)
        line = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return line
