"""HTTP/1.1, the client's half, without I/O: a request to bytes, and bytes to a response. Strict and bounded.

Knows nothing of Kubernetes, of sockets or of time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto

from msgspec import Struct

HEAD_MAX_BYTES = 64 * 1024
CHUNK_LINE_MAX_BYTES = 256
LENGTH_DIGITS_MAX = 15  # a petabyte; more is no length

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_SIZE = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(?:;.*)?", re.DOTALL)
_SAFE = re.compile(r"[\x21-\x7e]+")
_VALUE = re.compile(r"[\x20-\x7e]*")


class ProtocolError(Exception):
    """The peer does not speak HTTP/1.1. Never leaves this room."""


class ResponseHead(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # names in lower case


def encode(method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """A request. What could end a line early is refused: a header may carry what a file said."""
    if not _SAFE.fullmatch(target):
        raise ValueError(f"not a request target: {target!r:.80}")
    lines = [f"{method} {target} HTTP/1.1"]
    for name, value in headers.items():
        if not _VALUE.fullmatch(value):
            raise ValueError(f"the value of the header {name} holds a character that headers may not have")
        lines.append(f"{name}: {value}")
    if body or method in {"POST", "PATCH", "PUT"}:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


class _State(Enum):
    HEAD = auto()
    BODY = auto()  # `left` bytes of it, or of a chunk
    CHUNK_SIZE = auto()
    CHUNK_END = auto()
    TRAILERS = auto()
    TO_CLOSE = auto()
    DONE = auto()


class Response:
    """One response, as its bytes arrive. `feed` gives the pieces of the body that are new."""

    __slots__ = ("_at", "_buffer", "_chunked", "_http10", "_left", "_trailer_bytes", "head")

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        self._buffer = bytearray()
        self._at = _State.HEAD
        self._left = 0
        self._chunked = False
        self._http10 = False
        self._trailer_bytes = 0

    @property
    def done(self) -> bool:
        return self._at is _State.DONE

    @property
    def begun(self) -> bool:
        """Whether the server has said anything."""
        return self.head is not None or bool(self._buffer)

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request: nothing is left over, and the server did not say close."""
        if not self.done or self._buffer or self.head is None or self._http10:
            return False
        return "close" not in self.head.headers.get("connection", "").lower()

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        pieces: list[bytes] = []
        while self._step(pieces):
            pass
        return pieces

    def end(self) -> None:
        """The connection was closed. An error unless that is how the body ends."""
        if self._at is _State.TO_CLOSE:
            self._at = _State.DONE
        elif not self.done:
            raise ProtocolError("the connection was closed in the middle of an answer")

    def _step(self, pieces: list[bytes]) -> bool:
        """One part further, or False when more bytes are needed."""
        match self._at:
            case _State.HEAD:
                return self._take_head()
            case _State.BODY:
                return self._take_body(pieces)
            case _State.CHUNK_SIZE:
                return self._take_chunk_size()
            case _State.CHUNK_END:
                if self._line(0) is None:
                    return False
                self._at = _State.CHUNK_SIZE
            case _State.TRAILERS:
                return self._take_trailer()
            case _State.TO_CLOSE:
                if self._buffer:
                    pieces.append(bytes(self._buffer))
                    self._buffer.clear()
                return False
            case _State.DONE:
                return False
        return True

    def _line(self, most_bytes: int) -> bytes | None:
        """The next line, without its end. None: not here yet."""
        end = self._buffer.find(b"\r\n", 0, most_bytes + 2)
        if end < 0:
            if len(self._buffer) >= most_bytes + 2:
                raise ProtocolError(f"a line is longer than {most_bytes} bytes")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _take_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n", 0, HEAD_MAX_BYTES)
        if end < 0:
            if len(self._buffer) >= HEAD_MAX_BYTES:
                raise ProtocolError(f"the head is longer than {HEAD_MAX_BYTES} bytes")
            if self._buffer and not b"HTTP/1.".startswith(self._buffer[:7]):
                raise ProtocolError(_not_http(bytes(self._buffer[:16])))
            return False
        first, *lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        status = _STATUS.fullmatch(first)
        if status is None:
            raise ProtocolError(_not_http(first[:16]))
        headers = _headers(lines)
        if (code := int(status[2])) < 200:
            if code == 101:
                raise ProtocolError("the server wants to speak something else (101)")
            return True  # 100 Continue and its like: the answer follows
        self._http10 = status[1] == b"0"
        self.head = ResponseHead(code, headers)
        self._frame(self.head)
        return True

    def _frame(self, head: ResponseHead) -> None:
        """How the body ends."""
        coding, length = head.headers.get("transfer-encoding"), head.headers.get("content-length")
        if head.status in {204, 304}:
            self._at = _State.DONE
        elif coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise ProtocolError(f"the body is framed as {coding!r:.40} with length {length!r:.40}")
            self._chunked = True
            self._at = _State.CHUNK_SIZE
        elif length is not None:
            if not length.isascii() or not length.isdigit() or len(length) > LENGTH_DIGITS_MAX:
                raise ProtocolError(f"the length is {length!r:.40}")
            self._left = int(length)
            self._at = _State.BODY if self._left else _State.DONE
        else:
            self._at = _State.TO_CLOSE

    def _take_body(self, pieces: list[bytes]) -> bool:
        if not self._buffer:
            return False
        piece = bytes(self._buffer[: self._left])
        del self._buffer[: len(piece)]
        pieces.append(piece)
        self._left -= len(piece)
        if not self._left:
            self._at = _State.CHUNK_END if self._chunked else _State.DONE
        return True

    def _take_chunk_size(self) -> bool:
        line = self._line(CHUNK_LINE_MAX_BYTES)
        if line is None:
            return False
        found = _SIZE.fullmatch(line)
        if found is None or len(found[1]) > LENGTH_DIGITS_MAX:
            raise ProtocolError(f"a chunk has the size {line[:40]!r}")
        self._left = int(found[1], 16)
        self._at = _State.BODY if self._left else _State.TRAILERS
        return True

    def _take_trailer(self) -> bool:
        line = self._line(HEAD_MAX_BYTES - self._trailer_bytes)
        if line is None:
            return False
        self._trailer_bytes += len(line) + 2
        if not line:
            self._at = _State.DONE
        elif self._trailer_bytes >= HEAD_MAX_BYTES:
            raise ProtocolError("the trailers are too long")
        return True


def _headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name):
            raise ProtocolError(f"a header line is {line[:40]!r}")
        key, text = name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")
        if key in headers and key in {"content-length", "transfer-encoding"}:
            if headers[key] != text or key == "transfer-encoding":
                raise ProtocolError(f"the header {key} is there twice")
        elif key in headers:
            headers[key] += f", {text}"
        else:
            headers[key] = text
    return headers


def _not_http(start: bytes) -> str:
    if start.startswith((b"\x15\x03", b"\x16\x03")):
        return "it speaks TLS: the address should begin with https"
    return f"it begins with {start!r}, which is not HTTP/1.1"
