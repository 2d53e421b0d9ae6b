"""Regular expressions of Go (RE2), searched for in time that grows with the text, whatever the expression.

Python's own engine goes back and tries again: (a+)+b takes for ever on a row of a's. Here all ways are followed at
once, as in Go. It only says whether a text matches. What is not known is a ValueError with the reason.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable

from msgspec import Struct

PATTERN_MAX = 1000
PROGRAM_MAX = 20_000
REPEAT_MAX = 1000  # as in Go
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_DIGIT, _SPACE = frozenset(string.digits), frozenset("\t\n\f\r ")
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NAMED = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "blank": frozenset("\t "),
    "digit": _DIGIT,
    "graph": frozenset(map(chr, range(0x21, 0x7F))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(0x20, 0x7F))),
    "punct": frozenset(string.punctuation),
    "space": frozenset("\t\n\v\f\r "),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_REPEAT = re.compile(r"\{(\d{1,4})(,(\d{0,4}))?\}")

Takes = Callable[[str], bool]


class _Node(Struct, frozen=True):
    """`kind`: a letter that `takes` says; `^`, `$`, `b`, `B`: a place; `all` or `any` of the parts; `*`: repeated."""

    kind: str
    parts: tuple[_Node, ...] = ()
    takes: Takes | None = None
    low: int = 0
    high: int | None = None


class _Step(Struct, frozen=True, gc=False):
    kind: str
    takes: Takes | None = None
    to: tuple[int, ...] = ()


class Regex:
    """Compiled once; `search` is as Go's MatchString."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_MAX:
            raise ValueError(f"it has {len(pattern)} characters, and {PATTERN_MAX} are the limit")
        self._steps: list[_Step] = []
        start = self._put(_Parser(pattern).parse(), self._add(_Step("match")))
        self._start = start

    def search(self, text: str) -> bool:
        now: set[int] = {self._start}
        anchored = self._steps[self._start].kind == "^"
        for place in range(len(text) + 1):
            if not anchored:
                now.add(self._start)
            elif not now:
                break
            now = self._closure(now, text, place)
            if any(self._steps[at].kind == "match" for at in now):
                return True
            if place == len(text):
                break
            letter = text[place]
            steps = (self._steps[at] for at in now)
            now = {step.to[0] for step in steps if step.takes is not None and step.takes(letter)}
        return False

    def _closure(self, begun: Iterable[int], text: str, place: int) -> set[int]:
        seen, waiting = set(begun), list(begun)
        while waiting:
            step = self._steps[waiting.pop()]
            if step.takes is None and (step.kind == "" or (step.kind in _PLACES and _PLACES[step.kind](text, place))):
                fresh = [at for at in step.to if at not in seen]
                seen.update(fresh)
                waiting += fresh
        return seen

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= PROGRAM_MAX:
            raise ValueError("it repeats too much")
        self._steps.append(step)
        return len(self._steps) - 1

    def _put(self, node: _Node, then: int) -> int:
        """Where a node begins that goes on to `then`."""
        if node.kind == "all":
            for part in reversed(node.parts):
                then = self._put(part, then)
            return then
        if node.kind == "any":
            return self._add(_Step("", to=tuple(self._put(part, then) for part in node.parts)))
        if node.kind != "*":
            return self._add(_Step(node.kind, node.takes, (then,)))
        (part,) = node.parts
        if node.high is None:
            loop = self._add(_Step(""))
            self._steps[loop] = _Step("", to=(self._put(part, loop), then))
            then = loop
        else:
            for _ in range(node.high - node.low):
                then = self._add(_Step("", to=(self._put(part, then), then)))
        for _ in range(node.low):
            then = self._put(part, then)
        return then


def _at_edge(text: str, place: int) -> bool:
    before, after = text[place - 1 : place] if place else "", text[place : place + 1]
    return (before in _WORD) is not (after in _WORD)


_PLACES: dict[str, Callable[[str, int], bool]] = {
    "^": lambda _, place: place == 0,
    "$": lambda text, place: place == len(text),
    "b": _at_edge,
    "B": lambda text, place: not _at_edge(text, place),
}


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._rest = pattern
        self._fold = False

    def parse(self) -> _Node:
        made = self._any()
        if self._rest:
            raise ValueError("a ')' has no '('")
        return made

    def _next(self, what: str) -> str:
        if not self._rest:
            raise ValueError(f"{what} is not ended")
        letter, self._rest = self._rest[0], self._rest[1:]
        return letter

    def _skip(self, text: str) -> bool:
        found = self._rest.startswith(text)
        self._rest = self._rest[len(text) * found :]
        return found

    def _any(self, depth: int = 0) -> _Node:
        if depth > 50:
            raise ValueError("its groups are too deep")
        parts = [self._all(depth)]
        while self._skip("|"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else _Node("any", tuple(parts))

    def _all(self, depth: int) -> _Node:
        parts: list[_Node] = []
        while self._rest and self._rest[0] not in "|)":
            one = self._one(depth)
            parts.append(self._repeated(one))
        return _Node("all", tuple(parts))

    def _repeated(self, node: _Node) -> _Node:
        low, high = 1, 1
        if self._skip("*"):
            low, high = 0, -1
        elif self._skip("+"):
            low, high = 1, -1
        elif self._skip("?"):
            low, high = 0, 1
        elif found := _REPEAT.match(self._rest):
            self._rest = self._rest[found.end() :]
            low = int(found[1])
            high = low if found[2] is None else int(found[3]) if found[3] else -1
            if max(low, high) > REPEAT_MAX or (high >= 0 and high < low):
                raise ValueError(f"{found[0]} is no number of times up to {REPEAT_MAX}")
        else:
            return node
        self._skip("?")  # fewer or more: it matches all the same
        if self._rest[:1] in {"*", "+", "?"} or _REPEAT.match(self._rest):
            raise ValueError(f"{self._rest[0]!r} repeats what is repeated already")
        return _Node("*", (node,), low=low, high=high if high >= 0 else None)

    def _one(self, depth: int) -> _Node:
        letter = self._next("")
        if letter == "(":
            return self._group(depth)
        if letter == "[":
            return self._letters()
        if letter == ".":
            return _Node("", takes=lambda one: one != "\n")
        if letter in "^$":
            return _Node(letter)
        if letter in "*+?":
            raise ValueError(f"{letter!r} repeats nothing")
        if letter == "\\":
            return self._escaped()
        return self._letter(letter)

    def _group(self, depth: int) -> _Node:
        fold = self._fold
        if self._skip("?"):
            found = re.match(r"(?:P?<\w+>|(i?):|(i)\))", self._rest, re.ASCII)
            if found is None:
                raise ValueError(f"(?{self._rest[:3]} is not known here. Groups are (...), (?:...), (?i:...)")
            self._rest = self._rest[found.end() :]
            self._fold = self._fold or bool(found[1] or found[2])
            if found[2]:
                return _Node("all")  # (?i): for the rest of this group
        made = self._any(depth + 1)
        self._fold = fold
        if not self._skip(")"):
            raise ValueError("a '(' is not closed")
        return made

    def _letter(self, letter: str) -> _Node:
        return self._set({letter.lower(), letter.upper()} if self._fold else {letter})

    def _set(self, letters: Iterable[str], *, negated: bool = False) -> _Node:
        wanted = frozenset(letters)
        return _Node("", takes=(lambda one: one not in wanted) if negated else wanted.__contains__)

    def _escaped(self) -> _Node:
        letter = self._next("a '\\'")
        if letter in "bB":
            return _Node(letter)
        if letter in "Az":
            return _Node({"A": "^", "z": "$"}[letter])
        if letter.lower() in _CLASSES:
            return self._set(_CLASSES[letter.lower()], negated=letter.isupper())
        return self._letter(self._literal(letter))

    def _literal(self, letter: str) -> str:
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter == "x" and (found := re.match(r"[0-9A-Fa-f]{2}|\{([0-9A-Fa-f]{1,5})\}", self._rest)):
            self._rest = self._rest[found.end() :]
            return chr(int(found[1] or found[0], 16))
        if letter.isascii() and letter.isalnum():
            raise ValueError(f"\\{letter} is not known here")
        return letter

    def _letters(self) -> _Node:
        negated, letters, first = self._skip("^"), set[str](), True
        while first or not self._skip("]"):
            first = False
            if self._skip("[:"):
                name, _, self._rest = self._rest.partition(":]")
                if name not in _NAMED:
                    raise ValueError(f"[:{name[:20]}:] is not known here")
                letters |= _NAMED[name]
                continue
            low = self._next("a '['")
            if low == "\\":
                low = self._next("a '\\'")
                if low in _CLASSES:
                    letters |= _CLASSES[low]
                    continue
                low = self._literal(low)
            high = low
            if self._rest[:1] == "-" and self._rest[1:2] not in {"", "]"}:
                self._rest = self._rest[1:]
                high = self._next("a '['")
                high = self._literal(self._next("a '\\'")) if high == "\\" else high
            if not 0 <= ord(high) - ord(low) < 0x400:
                raise ValueError(f"the range {low}-{high} is not known here")
            letters |= {chr(one) for one in range(ord(low), ord(high) + 1)}
        if self._fold:
            letters |= {one.lower() for one in letters} | {one.upper() for one in letters}
        return self._set(letters, negated=negated)
