"""A connection on which no call is expected any more: answers what HTTP/2 itself asks, and sees anything else. Pure."""

from __future__ import annotations

from fairlead.wire.frames import ACK, FRAME_HEADER, HEADER_BYTES, PING, PRIORITY, SETTINGS, WINDOW_UPDATE, frame

_SILENT = frozenset({PRIORITY, WINDOW_UPDATE})
_CONTROL_BYTES = 1024  # the largest of these frames is a SETTINGS of a few entries


class UnexpectedFrame(Exception):
    """Something that a call consists of, or that ends the connection."""


def answer_control(data: bytes) -> tuple[bytes, bytes]:
    """What to send for the frames in the data, and the rest of it, which is the begin of a frame."""
    reply = bytearray()
    start = 0
    while len(data) - start >= HEADER_BYTES:
        high, low, kind, flags, _stream = FRAME_HEADER.unpack_from(data, start)
        size = (high << 8) | low
        if kind not in {*_SILENT, PING, SETTINGS} or size > _CONTROL_BYTES:
            raise UnexpectedFrame(f"frame {kind} of {size} bytes")
        end = start + HEADER_BYTES + size
        if len(data) < end:
            break
        if kind == PING and not flags & ACK:
            reply += frame(PING, ACK, 0, data[start + HEADER_BYTES : end])
        elif kind == SETTINGS and not flags & ACK:
            reply += frame(SETTINGS, ACK, 0)
        start = end
    return bytes(reply), data[start:]
