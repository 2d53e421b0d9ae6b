"""Command lines as Go programs read them: one dash or two, a flag's environment variables, and their empty values.

Owns the parsing and its errors. What the flags mean is the dialect's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from msgspec import Struct, field

from fairlead.kit.decoding import did_you_mean
from fairlead.model.errors import UsageError

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_OCTAL = re.compile(r"^([+-]?)0(?=[0-7_])")
INT_END = 2**63
FOREVER = float("inf")
HIDDEN = "***"


class Kind(Enum):
    TEXT = "text"
    BOOL = "true or false"
    TEXTS = "words, separated by commas"
    EACH = "text; the flag may be given several times"
    INTS = "whole numbers, separated by commas"
    INT = "a whole number"
    FLOAT = "a number"
    DURATION = "a duration, such as 60s"


class Flag(Struct, frozen=True):
    """All there is to know of a flag: parsing, help, reference, config file and translation read it here."""

    name: str
    kind: Kind = Kind.TEXT
    default: Any = None
    env: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    key: str = ""  # where the config file has it
    help: str = ""
    secret: bool = False  # its value is never shown
    choices: tuple[str, ...] = ()  # the values that it may have
    refusal: str = ""  # the other program's own text for a value that is no choice; none: only we refuse it
    into: str = ""  # where its value goes in our configuration; `backend`: the one entry of `backends`
    convert: Callable[[Any], Any] = lambda value: list(value) if isinstance(value, tuple) else value
    always: bool = False  # written there also when it is the default


class Parsed(Struct, frozen=True):
    values: dict[str, Any]  # by the flag's first name; every flag is here
    given: frozenset[str]  # on the command line or in the environment
    rest: tuple[str, ...] = ()  # from the first word that is no flag
    source: dict[str, str] = field(default_factory=dict)  # who gave it, for errors


class BadFlag(UsageError):
    exit_code = 1  # as the Go programs end


def parse(flags: Sequence[Flag], args: Sequence[str], environ: Mapping[str, str]) -> Parsed:
    """BadFlag for what no Go program would take either."""
    known = {spelling: flag for flag in flags for spelling in (flag.name, *flag.aliases)}
    values: dict[str, Any] = {flag.name: flag.default for flag in flags}
    source: dict[str, str] = {}
    for flag in flags:
        variable = next((name for name in flag.env if name in environ), None)
        if variable is not None and (value := _from_env(flag, variable, environ[variable])) is not None:
            values[flag.name], source[flag.name] = value, variable
    spelled: dict[str, str] = {}
    rest = list(args)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, text = word.lstrip("-").partition("=")
        flag_or_none = known.get(name)
        if flag_or_none is None:
            hint = did_you_mean(name, (), also=known)
            raise BadFlag(f"flag provided but not defined: -{name}{hint} --help lists all")
        flag = flag_or_none
        if not equals:
            if flag.kind is Kind.BOOL:
                text = "true"
            elif rest:
                text = rest.pop(0)
            else:
                raise BadFlag(f"flag needs an argument: -{name}. It takes {flag.kind.value}")
        if spelled.setdefault(flag.name, name) != name:
            raise BadFlag(f"Cannot use two forms of the same flag: {spelled[flag.name]} {name}. Keep one of them")
        before = values[flag.name] if source.get(flag.name, "").startswith("-") else None
        values[flag.name] = _joined(flag, before, read(flag.kind, text, f"--{name}"))
        source[flag.name] = f"--{name}"
    return Parsed(values, frozenset(source), tuple(rest), source)


def masked(flags: Sequence[Flag], args: Sequence[str]) -> list[str]:
    """A command line that may be shown: values of secret flags are hidden."""
    secret = {spelling for flag in flags if flag.secret for spelling in (flag.name, *flag.aliases)}
    shown: list[str] = []
    hide_next = False
    for word in args:
        name, equals, _ = word.lstrip("-").partition("=")
        if hide_next:
            shown.append(HIDDEN)
        elif word.startswith("-") and name in secret and equals:
            shown.append(f"{word.partition('=')[0]}={HIDDEN}")
        else:
            shown.append(word)
        hide_next = not hide_next and word.startswith("-") and name in secret and not equals
    return shown


def _joined(flag: Flag, before: Any, value: Any) -> Any:
    """A list flag that is given again adds to what it had; any other is replaced."""
    return (*before, *value) if before is not None and flag.kind in {Kind.TEXTS, Kind.INTS, Kind.EACH} else value


def _from_env(flag: Flag, variable: str, text: str) -> Any:
    if text == "":
        empty = {Kind.BOOL: False, Kind.TEXT: "", Kind.TEXTS: ("",)}
        return empty.get(flag.kind)
    return read(flag.kind, text, variable)


def read(kind: Kind, text: str, who: str) -> Any:
    """One value. BadFlag names who gave it and what is expected."""
    try:
        return _READERS[kind](text)
    except ValueError:
        raise BadFlag(f"{who}: {text!r} is not {kind.value}") from None


def _bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(text)


def _int(text: str) -> int:
    """As Go reads a whole number: 0x10 is 16, 010 is 8, 1_000 is 1000, and more than 64 bits are none."""
    value = int(_OCTAL.sub(r"\g<1>0o", text.strip()), 0) if text.isascii() else INT_END
    if not -INT_END <= value < INT_END:
        raise ValueError(text)
    return value


def duration(text: str) -> float:
    """Seconds; `infinite` is for ever."""
    if text == "infinite":
        return FOREVER
    if text == "0":
        return 0.0
    sign = -1.0 if text.startswith("-") else 1.0
    body = text.lstrip("+-")
    found = list(_DURATION.finditer(body))
    if not found or "".join(match[0] for match in found) != body:
        raise ValueError(text)
    return sign * sum(float(match[1]) * _UNITS[match[2]] for match in found)


_READERS: dict[Kind, Any] = {
    Kind.TEXT: str,
    Kind.BOOL: _bool,
    Kind.TEXTS: lambda text: tuple(word.strip() for word in text.split(",")),
    Kind.EACH: lambda text: (text,),
    Kind.INTS: lambda text: tuple(_int(word) for word in text.split(",")),
    Kind.INT: _int,
    Kind.FLOAT: float,
    Kind.DURATION: duration,
}


def usage(program: str, summary: str, flags: Sequence[Flag]) -> str:
    """Help, in our own layout."""
    lines = [f"Usage: {program} [flags]", "", f"  {summary}", "", "Flags:"]
    for flag in flags:
        names = ", ".join(f"--{name}" for name in (flag.name, *flag.aliases))
        default = "" if flag.default in (None, "", (), False) else f" Default: {_shown(flag.default)}."
        env = f" [{', '.join(flag.env)}]" if flag.env else ""
        lines += [f"  {names}{env}", f"      {flag.help}{default}"]
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> str:
    return (
        ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower() if value is True else str(value)
    )
