"""Protobuf's variable-length integers and the skipping of fields one does not know. Knows no message."""

from __future__ import annotations

# google.protobuf's own bound on nested groups in data it does not know.
_MAX_GROUP_DEPTH = 100
MAX_TAG = (1 << 32) - 1


class DecodeError(ValueError):
    """The bytes are not the message they were said to be."""


class EncodeError(ValueError):
    """The message holds a value its field cannot carry."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The value and the position behind it. IndexError past the end of the data is the caller's to translate."""
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                raise DecodeError("a varint is longer than 64 bits")
            return value, at
        shift += 7
        if shift > 63:
            raise DecodeError("a varint is longer than ten bytes")


def write_varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_field(data: bytes, at: int, end: int, tag: int, depth: int = 0) -> int:
    """The position behind a field that has no name here."""
    if tag > MAX_TAG or tag < 8:
        raise DecodeError(f"tag {tag} is not allowed")
    wire_type = tag & 7
    if wire_type == 0:
        _, at = read_varint(data, at)
    elif wire_type == 1:
        at += 8
    elif wire_type == 2:
        size, at = read_varint(data, at)
        at += size
    elif wire_type == 3:
        return _skip_group(data, at, end, tag >> 3, depth + 1)
    elif wire_type == 5:
        at += 4
    else:
        raise DecodeError(f"wire type {wire_type} is not allowed here")
    if at > end:
        raise DecodeError("the message ends inside a field")
    return at


def _skip_group(data: bytes, at: int, end: int, number: int, depth: int) -> int:
    if depth > _MAX_GROUP_DEPTH:
        raise DecodeError("groups are nested too deep")
    while at < end:
        tag, at = read_varint(data, at)
        if tag & 7 == 4:
            if tag >> 3 != number or at > end:
                raise DecodeError("a group ends with the wrong number")
            return at
        at = skip_field(data, at, end, tag, depth)
    raise DecodeError("a group does not end")
