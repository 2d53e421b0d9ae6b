"""Text from outside, made fit to be shown and sent: names of files, of devices, messages of others.

A file name need not be UTF-8: Python keeps its odd bytes as halves of surrogate pairs, which no encoder takes. And a
name may hold escape sequences that a terminal obeys. Neither is refused where it is shown: it is escaped, always in the
same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

_BYTES = range(0xDC80, 0xDD00)  # what Python makes of the bytes 0x80 to 0xFF
_HALVES = range(0xD800, 0xE000)


def printable(text: str) -> str:
    r"""On one line, and without anything that a terminal obeys: `\x1b`, `\u202e`, and `\xff` for an odd byte."""
    return text if text.isprintable() else "".join(one if one.isprintable() else _escape(one) for one in text)


def encodable(text: str) -> str:
    """Any encoder takes it. Only halves of surrogate pairs are changed."""
    return text if is_encodable(text) else "".join(_escape(one) if ord(one) in _HALVES else one for one in text)


def is_encodable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= one <= "\udfff" for one in text)


def to_json(value: Any) -> bytes:
    """JSON of plain data. What it does not know becomes text."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:
        return msgspec.json.encode(each_text(msgspec.to_builtins(value, enc_hook=str), encodable), enc_hook=str)


def show_json(text: str) -> str:
    """JSON as a terminal may have it: the same meaning, and nothing but line breaks that is not printable."""
    if text.isprintable():
        return text
    return "".join(one if one == "\n" or one.isprintable() else _json_escape(one) for one in text)


def each_text(data: Any, change: Callable[[str], str]) -> Any:
    """Plain data with every text in it changed, keys too."""
    if isinstance(data, str):
        return change(data)
    if isinstance(data, dict):
        return {each_text(key, change): each_text(value, change) for key, value in data.items()}
    return [each_text(part, change) for part in data] if isinstance(data, list | tuple) else data


def _escape(one: str) -> str:
    number = ord(one)
    if number in _BYTES:
        return f"\\x{number - 0xDC00:02x}"
    simple = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(one)
    if simple is not None:
        return simple
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _json_escape(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
