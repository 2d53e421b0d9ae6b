"""Damage to texts and to decoded data. What goes in is mostly right, so that the damage reaches deep."""

from __future__ import annotations

import copy
import random
from typing import Any

# fmt: off
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 65_536, 1 << 31, 1 << 63, -(1 << 63), 1 << 70, 0.5, -0.0, 1e308,
    float("inf"), float("nan"), "", " ", "0", "-1", "x", "é", "\x00", "\ud800", "a" * 300, "..", "/", "../x", "{ids}",
    "{", "}{", "::", "*", "[", "1s", "1h", "-5s", "80GiB", "9" * 400, [], {}, [[]], [None], {"": 0}, [1, "two"],
    {"kind": "sim"},
)
BITS = (
    "\n", " ", "\t", "- ", ": ", "{", "}", "[", "]", ",", "&a ", "*a", "!!python/object ", "!!binary ", "<<: ", "|",
    ">", "#", "'", '"', "\\", "\x00", "\ufeff", "---\n", "...\n", "? ", "0x", "~", "null", "yes", "é", "\U0001f600",
    "%",
)
# fmt: on


def damage_text(rng: random.Random, text: str) -> str:
    """Cuts, doubles, swaps and inserts; one in six stays as it is."""
    for _ in range(rng.choice((0, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(text) + 1)
        size = rng.choice((1, 1, 2, 5, 20, 80))
        match rng.randrange(6):
            case 0:
                text = text[:at] + text[at + size :]
            case 1:
                text = text[:at] + text[at : at + size] * rng.choice((2, 2, 5)) + text[at:]
            case 2:
                text = text[:at] + rng.choice(BITS) + text[at:]
            case 3:
                text = text[:at] + chr(rng.choice((rng.randrange(32, 127), rng.randrange(0xD7FF)))) + text[at + 1 :]
            case 4:
                other = rng.randrange(len(text) + 1)
                text = text[:at] + text[other : other + size] + text[at:]
            case _:
                word = rng.choice(ODD)
                text = text[:at] + (word if isinstance(word, str) else repr(word)) + text[at:]
    return text[:20_000]


def damage_data(rng: random.Random, data: Any) -> Any:
    """A copy in which a few places hold something else, are gone, doubled, or have moved."""
    box = [copy.deepcopy(data)]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        holder, key = _place(rng, box)
        match rng.randrange(6):
            case 0 | 1:
                holder[key] = copy.deepcopy(rng.choice(ODD))
            case 2 if holder is not box:
                del holder[key]
            case 3:
                other, there = _place(rng, box)
                holder[key] = copy.deepcopy(other[there])
            case 4 if isinstance(holder, list) and holder is not box:
                holder.insert(key, copy.deepcopy(holder[key]))
            case 5 if isinstance(holder, dict):
                holder[rng.choice(("", "x", "count", "device", str(key) + "s", "é"))] = holder.pop(key)
            case _:
                holder[key] = [holder[key]]
    return box[0] if box else None


def _place(rng: random.Random, box: list[Any]) -> tuple[Any, Any]:
    """Somewhere in the data: what holds it, and under which key."""
    holder: Any = box
    key: Any = 0
    while (inner := holder[key]) and isinstance(inner, (dict, list)) and rng.random() < 0.8:
        holder = inner
        key = rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))
    return holder, key


def damage_bytes(rng: random.Random, data: bytes) -> bytes:
    raw = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        at = rng.randrange(len(raw) + 1)
        size = rng.choice((1, 1, 3, 12))
        match rng.randrange(4):
            case 0 if at < len(raw):
                raw[at] = rng.randrange(256)
            case 1:
                del raw[at : at + size]
            case 2:
                raw[at:at] = raw[at : at + size]
            case _:
                raw[at:at] = rng.randbytes(size)
    return bytes(raw)
