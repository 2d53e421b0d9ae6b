"""HTTP/1.1, the server's half, without I/O: bytes to requests. Strict and bounded.

What two parsers could read in two ways is refused: behind a proxy it would be a request that the proxy did not see.
Knows nothing of sockets, of time or of what is served.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto
from io import BytesIO

from msgspec import Struct

from fairlead.scheduler.http.limits import Limits

METHOD_MAX_CHARS = 32
CHUNK_LINE_MAX_BYTES = 256  # a size and its extension
LENGTH_DIGITS_MAX = 15  # a petabyte; more is no length
# Each chunk costs time, whatever it holds: so many are free, and then one for so many bytes.
CHUNKS_FREE = 1024
CHUNK_MEAN_BYTES = 64

_CHAR = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
# True for the begin of a request line, however short; once false, false for all that follows.
_BEGIN = re.compile(rf"{_CHAR}{{1,{METHOD_MAX_CHARS}}}(?: .*)?".encode(), re.DOTALL)
_LINE = re.compile(rf"({_CHAR}+) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_ABSOLUTE = re.compile(r"https?://[^/?]+", re.IGNORECASE)
_NAME = re.compile(rf"{_CHAR}+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # all but the tab
_SIZE = re.compile(rf"([0-9A-Fa-f]{{1,{LENGTH_DIGITS_MAX}}})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?".encode())
_ONCE = {"content-length", "host", "transfer-encoding"}
_TLS_RECORD = 0x16


class Refused(Exception):
    """Bytes that are no request which is taken here. Where the next one begins is not known: the connection ends."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Head(Struct, frozen=True):
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    length: int | None  # of the body. None: chunked, and known at its end
    keep: bool  # whether the client wants to ask more on this connection
    expects: bool  # the client sends the body after 100 Continue


class _At(Enum):
    HEAD = auto()
    BODY = auto()
    SIZE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    TRAILERS = auto()


class RequestParser:
    """`feed` it what comes. `read_head` gives the next head when it is there, and `read_body` then the body.

    What has come and was not asked for is kept: it is bounded by whoever feeds.
    """

    __slots__ = (
        "_at",
        "_body",
        "_chunks",
        "_complete",
        "_data",
        "_left",
        "_limits",
        "_pos",
        "_skipped",
        "_trailers",
        "received",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._data = b""
        self._pos = 0
        self._reset()

    def _reset(self) -> None:
        self._at = _At.HEAD
        self._body: BytesIO | None = None
        self._left = 0
        self._chunks = 0
        self._complete = False  # a chunked body
        self._trailers = [0, 0]  # lines and bytes
        self._skipped = False
        self.received = 0  # bytes of the body
        if not self.pending:
            self._data, self._pos = b"", 0  # a connection that waits for a minute should hold nothing

    @property
    def pending(self) -> int:
        """Bytes that were fed and not yet used."""
        return len(self._data) - self._pos

    def feed(self, data: bytes) -> None:
        self._data = self._data[self._pos :] + data if self._pos < len(self._data) else data
        self._pos = 0

    def read_head(self) -> Head | None:
        """None: not all of it is there. Once it was given, the body must be read first."""
        assert self._at is _At.HEAD
        if not self._skipped and self._data.startswith(b"\r\n", self._pos):
            self._pos += 2  # some clients send an empty line behind a body
            self._skipped = True
        if not self.pending or (self.pending == 1 and not self._skipped and self._data.endswith(b"\r")):
            return None
        self._check_begin()
        end = self._data.find(b"\r\n\r\n", self._pos, self._pos + self._limits.head_bytes)
        if end < 0:
            if self.pending >= self._limits.head_bytes:
                raise Refused(431, f"the head of the request has more than {self._limits.head_bytes:,} bytes")
            return None
        raw = self._data[self._pos : end]
        self._pos = end + 4
        head = _parse(raw, self._limits)
        self._left = head.length or 0
        self._at = _At.SIZE if head.length is None else _At.BODY
        return head

    def read_body(self) -> bytes | None:
        """None: not all of it is there."""
        assert self._at is not _At.HEAD
        if self._at is _At.BODY:
            if self._body is None and self.pending >= self._left:
                body = self._data[self._pos : self._pos + self._left]
                self._pos += self._left
                self._reset()
                return body
            if not self._take():
                return None
        else:
            while not self._complete:
                if not self._step():
                    return None
        # Not copied: BytesIO hands out what it holds.
        body = self._body.getvalue() if self._body is not None else b""
        self._reset()
        return body

    def _check_begin(self) -> None:
        begin = self._data[self._pos : self._pos + METHOD_MAX_CHARS + 1]
        if _BEGIN.fullmatch(begin):
            return
        if begin[0] == _TLS_RECORD:
            raise Refused(400, "this is a TLS handshake, and plain HTTP is spoken here: use http, not https")
        raise Refused(400, "this does not begin like an HTTP request")

    def _take(self) -> bool:
        """What is there of `_left` bytes. True: that was all."""
        if self._body is None:
            self._body = BytesIO()
        size = self._body.write(memoryview(self._data)[self._pos : self._pos + self._left])
        self._pos += size
        self._left -= size
        self.received += size
        return not self._left

    def _step(self) -> bool:
        """One part of a chunked body further. False: more bytes are needed."""
        if self._at is _At.SIZE:
            return self._take_size()
        if self._at is _At.CHUNK:
            if self._take():
                self._at = _At.CHUNK_END
            return self._at is _At.CHUNK_END
        if self._at is _At.CHUNK_END:
            if self.pending < 2:
                return False
            if not self._data.startswith(b"\r\n", self._pos):
                raise Refused(400, "a chunk of the body is longer than its size says")
            self._pos += 2
            self._at = _At.SIZE
            return True
        return self._take_trailer()

    def _line(self, most_bytes: int) -> bytes | None:
        """The next line, without its end. None: not here yet."""
        end = self._data.find(b"\r\n", self._pos, self._pos + most_bytes + 2)
        if end < 0:
            if self.pending >= most_bytes + 2:
                raise Refused(400, f"a line between chunks of the body has more than {most_bytes:,} bytes")
            return None
        line = self._data[self._pos : end]
        self._pos = end + 2
        return line

    def _take_size(self) -> bool:
        line = self._line(CHUNK_LINE_MAX_BYTES)
        if line is None:
            return False
        found = _SIZE.fullmatch(line)
        if found is None:
            raise Refused(400, f"a chunk of the body has the size {line[:40].decode('latin-1')!r}, which is none")
        self._left = int(found[1], 16)
        self._chunks += 1
        if self.received + self._left > self._limits.body_bytes:
            raise _too_large(self._limits)
        if self._chunks > CHUNKS_FREE + self.received // CHUNK_MEAN_BYTES:
            raise Refused(400, f"the body comes in too many chunks of less than {CHUNK_MEAN_BYTES} bytes")
        self._at = _At.CHUNK if self._left else _At.TRAILERS
        return True

    def _take_trailer(self) -> bool:
        """They are checked and then forgotten: nobody here asks for them, and one must not pass for a header."""
        lines, size = self._trailers
        line = self._line(self._limits.head_bytes - size)
        if line is None:
            return False
        if not line:
            self._complete = True
            return True
        lines, size = lines + 1, size + len(line) + 2
        if lines > self._limits.headers or size > self._limits.head_bytes:
            raise Refused(431, "the body has too many trailers")
        _field(line.decode("latin-1"))
        if _CONTROL.search(line):
            raise Refused(400, "a trailer of the body holds a control character")
        self._trailers = [lines, size]
        return True


def _parse(raw: bytes, limits: Limits) -> Head:
    if _CONTROL.search(raw.replace(b"\r\n", b"")):
        raise Refused(400, "the head of the request holds a control character")
    first, *lines = raw.decode("latin-1").split("\r\n")
    found = _LINE.fullmatch(first)
    if found is None:
        raise Refused(400, "the first line is not that of an HTTP/1.1 request")
    method, target, major, minor = found.groups()
    if major != "1" or minor not in {"0", "1"}:
        raise Refused(505, f"HTTP/{major}.{minor} is not spoken here; HTTP/1.1 is")
    if len(lines) > limits.headers:
        raise Refused(431, f"the request has {len(lines)} headers, and {limits.headers} are the limit")
    headers = _headers(lines)
    new = minor == "1"
    if new and "host" not in headers:
        raise Refused(400, "the header Host is missing")
    path, query = _split(target)
    expectation = headers.get("expect", "").lower() if new else ""
    if expectation not in {"", "100-continue"}:
        raise Refused(417, f"the expectation {expectation[:40]!r} is not known here")
    keep = new and "close" not in {word.strip() for word in headers.get("connection", "").lower().split(",")}
    length = _length(headers, limits, new=new)
    return Head(method, path, query, headers, length, keep, bool(expectation))


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, value = _field(line)
        if name not in headers:
            headers[name] = value
        elif name in _ONCE:
            raise Refused(400, f"the header {name} is there twice")
        else:
            headers[name] += f", {value}"
    return headers


def _field(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not _NAME.fullmatch(name):
        raise Refused(400, f"the line {line[:40]!r} is not a header")
    return name.lower(), value.strip(" \t")


def _split(target: str) -> tuple[str, str]:
    """The path and the query. Also of the long form that is sent to proxies, and `*` of OPTIONS."""
    if not target.startswith("/") and target != "*":
        absolute = _ABSOLUTE.match(target)
        if absolute is None:
            raise Refused(400, f"the request is for {target[:40]!r}, which is not a path")
        target = target[absolute.end() :]
        target = target if target.startswith("/") else f"/{target}"
    path, _, query = target.partition("?")
    return path, query


def _length(headers: Mapping[str, str], limits: Limits, *, new: bool) -> int | None:
    coding, said = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if said is not None:
            raise Refused(400, "the body is framed twice, by Content-Length and by Transfer-Encoding")
        if not new:
            raise Refused(400, "HTTP/1.0 knows no Transfer-Encoding")
        if coding.lower() != "chunked":
            raise Refused(501, f"the transfer encoding {coding[:40]!r} is not known here; chunked is")
        return None
    if said is None:
        return 0
    if not said.isascii() or not said.isdigit() or len(said) > LENGTH_DIGITS_MAX:
        raise Refused(400, f"the Content-Length {said[:40]!r} is not a length")
    length = int(said)
    if length > limits.body_bytes:
        raise _too_large(limits)
    return length


def _too_large(limits: Limits) -> Refused:
    return Refused(413, f"the body has more than {limits.body_bytes:,} bytes, which are the limit")
