"""Globs as Go's filepath.Glob has them: a leading dot is like any other letter, `**` is `*`, `[^a]` is "not a", and a
backslash takes the next letter as it is. A path without any of these is itself.
"""

from __future__ import annotations

import re
from functools import lru_cache

from fairlead.backends.paths.found import Look
from fairlead.kit.hostroot import NAMES_MAX

MATCHES_MAX = 4096  # of one pattern; no node has so many devices of one kind
_MAGIC = frozenset("*?[\\")


def expand(look: Look, pattern: str) -> list[str]:
    """What exists and matches, in the order of its letters. More than the limit is named, and left out."""
    found, left = [""], NAMES_MAX
    for part in pattern.split("/")[1:]:
        if _MAGIC.isdisjoint(part):
            found = [f"{above}/{part}" for above in found]
            continue
        wanted, matches = compile_part(part), list[str]()
        for above in found:
            names = look.root.names(above or "/", look.failed)
            left -= len(names)
            if left < 0:
                look.problems.append(f"{pattern} leads through over {NAMES_MAX:,} names, so it finds nothing")
                return []
            matches += [f"{above}/{name}" for name in names if wanted.fullmatch(name)]
        if len(matches) > MATCHES_MAX:
            look.problems.append(f"{pattern} matches {len(matches):,} files, and the first {MATCHES_MAX:,} count")
        found = sorted(matches)[:MATCHES_MAX]
    return sorted(path for path in found if look.root.real(path, look.failed) is not None)


@lru_cache(maxsize=256)
def compile_part(part: str) -> re.Pattern[str]:
    """ValueError for what is no pattern. Each star is followed by an atomic part: no name makes it search for long."""
    *stars, last = _split(part)
    text = stars[0] if stars else ""
    text += "".join(f"(?>.*?{chunk})" for chunk in stars[1:])
    return re.compile(f"{text}.*{last}" if stars else last, re.DOTALL)


def _split(part: str) -> list[str]:
    """The expressions between the stars. Each letter of one stands for exactly one letter of a name."""
    chunks, rest = [""], part
    while rest:
        letter, rest = rest[0], rest[1:]
        if letter == "*":
            chunks.append("")
        elif letter == "?":
            chunks[-1] += "."
        elif letter == "[":
            made, rest = _letters(rest)
            chunks[-1] += made
        else:
            letter, rest = _letter(letter, rest)
            chunks[-1] += re.escape(letter)
    return chunks


def _letters(rest: str) -> tuple[str, str]:
    negated = rest.startswith("^")
    rest, made = rest[negated:], ""
    while not rest.startswith("]") or not made:
        if not rest or rest[0] in "-]":
            raise ValueError("a '[' is not closed, or holds nothing")
        low, rest = _letter(rest[0], rest[1:])
        high = low
        if rest.startswith("-"):
            if len(rest) < 2 or rest[1] in "-]":
                raise ValueError("a range within '[' and ']' has no end")
            high, rest = _letter(rest[1], rest[2:])
        if low > high:
            raise ValueError(f"the range {low}-{high} is empty")
        made += f"{re.escape(low)}-{re.escape(high)}"
    return f"[{'^' if negated else ''}{made}]", rest[1:]


def _letter(letter: str, rest: str) -> tuple[str, str]:
    if letter != "\\":
        return letter, rest
    if not rest:
        raise ValueError("a '\\' stands at the end")
    return rest[0], rest[1:]
