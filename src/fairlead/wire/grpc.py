"""gRPC's own bytes on HTTP/2: message prefixes, timeouts, status headers. Pure; knows no connection."""

from __future__ import annotations

import re
from struct import Struct

from fairlead.wire.headers import encode_fields
from fairlead.wire.method import RpcError, Status

PREFIX = Struct(">BI")
PREFIX_BYTES = PREFIX.size

_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNIT_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_MAX_TIMEOUT_DIGITS = 99_999_999

# Peers bound a header list at 8 to 16 KiB; a longer text would cost the status too.
_MAX_TEXT_BYTES = 4096
_PLAIN = re.compile(rb"[^ -$&-~]")
_QUOTED = re.compile(rb"%([0-9A-Fa-f]{2})")

RESPONSE_HEADERS = encode_fields([(b":status", b"200"), (b"content-type", b"application/grpc")])
OK_TRAILERS = encode_fields([(b"grpc-status", b"0")])


def length_prefixed(payload: bytes) -> bytes:
    """An uncompressed message as it travels."""
    return PREFIX.pack(0, len(payload)) + payload


class MessageDeframer:
    """Cuts the DATA of one stream into messages."""

    __slots__ = ("_buffer", "_limit", "_need")

    def __init__(self, message_bytes: int) -> None:
        self._buffer = bytearray()
        self._limit = message_bytes
        self._need = PREFIX_BYTES

    def __len__(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are whole now. RpcError when one is compressed or too long."""
        buffer = self._buffer
        buffer += data
        if len(buffer) < self._need:
            return []
        found: list[bytes] = []
        at = 0
        self._need = PREFIX_BYTES
        while len(buffer) - at >= PREFIX_BYTES:
            compressed, size = PREFIX.unpack_from(buffer, at)
            if compressed:
                raise RpcError(Status.UNIMPLEMENTED, "the message is compressed; only identity is supported")
            if size > self._limit:
                raise RpcError(
                    Status.RESOURCE_EXHAUSTED, f"the message has {size} bytes; at most {self._limit} are accepted"
                )
            stop = at + PREFIX_BYTES + size
            if stop > len(buffer):
                self._need = PREFIX_BYTES + size
                break
            found.append(bytes(buffer[at + PREFIX_BYTES : stop]))
            at = stop
        del buffer[:at]
        return found


def parse_timeout_s(value: bytes) -> float:
    match = _TIMEOUT.fullmatch(value)
    if not match:
        # grpc-go answers INTERNAL, and the kubelet's client library is grpc-go.
        raise RpcError(Status.INTERNAL, f"malformed grpc-timeout {value.decode('latin-1')!r}")
    return int(match[1]) * _UNIT_S[match[2]]


def format_timeout(timeout_s: float) -> bytes:
    """The finest unit in which eight digits are enough, rounded up: never shorter than asked."""
    for unit in (b"n", b"u", b"m", b"S", b"M", b"H"):
        count = int(-(-max(timeout_s, 0.0) // _UNIT_S[unit]))
        if count <= _MAX_TIMEOUT_DIGITS:
            return b"%d%s" % (count, unit)
    return b"%dH" % _MAX_TIMEOUT_DIGITS


def percent_encode(text: str) -> bytes:
    """Percent-encodes a status message: UTF-8, printable ASCII but the percent sign kept."""
    raw = text.encode("utf-8", "replace")
    if len(raw) > _MAX_TEXT_BYTES:
        raw = raw[:_MAX_TEXT_BYTES].decode("utf-8", "ignore").encode()
    # A header value may not begin or end with a space, so spaces at the ends are quoted as well.
    quoted = _PLAIN.sub(lambda match: b"%%%02X" % match[0][0], raw)
    inner = quoted.strip(b" ")
    lead = len(quoted) - len(quoted.lstrip(b" "))
    return b"%20" * lead + inner + b"%20" * (len(quoted) - lead - len(inner))


def percent_decode(value: bytes) -> str:
    """Never fails: what is not valid percent-encoding is shown as it came."""
    return _QUOTED.sub(lambda match: bytes((int(match[1], 16),)), value).decode("utf-8", "replace")


def error_fields(status: Status, text: str) -> list[tuple[bytes, bytes]]:
    found = [(b"grpc-status", b"%d" % status)]
    if text:
        found.append((b"grpc-message", percent_encode(text)))
    if status is Status.UNIMPLEMENTED:
        found.append((b"grpc-accept-encoding", b"identity"))
    return found


def error_trailers(status: Status, text: str) -> bytes:
    return encode_fields(error_fields(status, text))


def error_trailers_only(status: Status, text: str) -> bytes:
    """An answer that is nothing but trailers."""
    return RESPONSE_HEADERS + encode_fields(error_fields(status, text))


def request_block(path: str, authority: str, timeout_s: float | None) -> bytes:
    found = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", authority.encode()),
        (b"te", b"trailers"),
    ]
    if timeout_s is not None:
        found.append((b"grpc-timeout", format_timeout(timeout_s)))
    found += [(b"content-type", b"application/grpc"), (b"user-agent", b"fairlead")]
    return encode_fields(found)


def is_grpc(content_type: bytes | None) -> bool:
    if content_type is None or not content_type.startswith(b"application/grpc"):
        return False
    return len(content_type) == 16 or content_type[16:17] in {b"+", b";"}
