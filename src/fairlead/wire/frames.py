"""HTTP/2 frames as numbers and bytes (RFC 9113, sections 4, 6 and 7). Knows no stream and no state."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)

DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_BYTES = 16_384
LARGEST_FRAME_BYTES = (1 << 24) - 1
MAX_WINDOW = MAX_STREAM_ID = (1 << 31) - 1

# Length as 16 + 8 bits, type, flags, stream.
FRAME_HEADER = Struct(">HBBBI")
HEADER_BYTES = FRAME_HEADER.size
SETTING = Struct(">HI")
UINT32 = Struct(">I")
TWO_UINT32 = Struct(">II")


class ErrorCode(IntEnum):
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


def error_name(code: int) -> str:
    """An unknown code is legal (RFC 9113, 7) and has no name."""
    return ErrorCode(code).name if 0 <= code <= ErrorCode.HTTP_1_1_REQUIRED else f"code {code}"


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return FRAME_HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def frame_header(size: int, kind: int, flags: int, stream_id: int) -> bytes:
    """The nine bytes before a payload that the caller appends itself."""
    return FRAME_HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream_id)


def header_frames(stream_id: int, block: bytes, *, end_stream: bool, frame_bytes: int) -> bytes:
    """HEADERS, and CONTINUATIONs when the block is longer than one frame may be."""
    flags = END_STREAM if end_stream else 0
    if len(block) <= frame_bytes:
        return frame(HEADERS, flags | END_HEADERS, stream_id, block)
    parts = [frame(HEADERS, flags, stream_id, block[:frame_bytes])]
    for start in range(frame_bytes, len(block), frame_bytes):
        last = start + frame_bytes >= len(block)
        parts.append(frame(CONTINUATION, END_HEADERS if last else 0, stream_id, block[start : start + frame_bytes]))
    return b"".join(parts)


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(key, value) for key, value in values.items()))


def rst_stream(stream_id: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, UINT32.pack(code))


def goaway(last_stream_id: int, code: int, debug: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, TWO_UINT32.pack(last_stream_id, code) + debug)


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, UINT32.pack(increment))
