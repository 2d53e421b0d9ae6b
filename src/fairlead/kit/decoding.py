"""Strict decoding of what people write: unknown keys are refused, and an error says where, what and what instead.

The one decoder of configurations, ours and those of other systems: plain data from `kit/documents.py` goes in, a
struct and every fault come out. What another system overlooks is repaired before. Owns sizes, durations, lists of one
and the wording of errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from fairlead.kit import documents
from fairlead.kit.documents import Path
from fairlead.model.errors import ConfigError

T = TypeVar("T")
Problem = tuple[Path, str]  # where, and what

FAULTS_MAX = 50  # more at once is more than one reads
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)?", re.IGNORECASE)
_UNITS = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_UNITS["tb"] = 10**12
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Bytes(int):
    """A size: a number of bytes, or text such as 80GiB."""

    __slots__ = ()

    @classmethod
    def parse(cls, raw: object) -> Bytes:
        match = _SIZE.fullmatch(raw.strip()) if isinstance(raw, str) else None
        if match and (size := float(match[1]) * _UNITS[(match[2] or "B").lower()]) < float("inf"):
            return cls(size)
        if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 0:
            return cls(raw)
        raise ValueError("expected a size, such as 80GiB or a number of bytes")


class Seconds(float):
    """A duration: a number of seconds, or text such as 250ms, 5s, 1m."""

    __slots__ = ()

    @classmethod
    def parse(cls, raw: object) -> Seconds:
        match = _DURATION.fullmatch(raw.strip()) if isinstance(raw, str) else None
        if match and (seconds := float(match[1]) * _SECONDS[match[2] or "s"]) < float("inf"):
            return cls(seconds)
        # A finite number: a YAML file can say .inf and .nan.
        if isinstance(raw, int | float) and not isinstance(raw, bool) and 0 <= raw < float("inf"):
            return cls(raw)
        raise ValueError("expected a duration, such as 250ms, 5s, 1m or a number of seconds")


def doc(text: str, *examples: Any) -> msgspec.Meta:
    """What a key means, for the reference and the schema."""
    return msgspec.Meta(description=text, examples=list(examples) or None)


class Words(tuple[str, ...]):
    """One text, or a list of them."""

    __slots__ = ()

    @classmethod
    def parse(cls, raw: object) -> Words:
        words = [word for word in (raw if isinstance(raw, list | tuple) else [raw]) if isinstance(word, str)]
        if len(words) == (len(raw) if isinstance(raw, list | tuple) else 1):
            return cls(words)
        # YAML reads 8086 as a number, and 1e03 as another one.
        raise ValueError("expected text or a list of texts; put digits in quotes")


def convert(raw: object, into: type[T], source: str, *, at: str = "", lax: bool = False) -> T:
    """Decodes builtins into a struct, or raises ConfigError. `lax` takes "79" for a number, as command lines need."""
    value, fault = attempt(raw, into, lax=lax)
    if value is None or fault is not None:
        assert fault is not None
        where = f"{at}{dotted(fault.at)}".lstrip(".")
        raise ConfigError(source, [f"{where}: {fault.text}" if where else fault.text]) from None
    return value


class Fault(Struct, frozen=True):
    """The first thing a decoder stumbles over."""

    at: Path  # where the error is shown
    path: Path  # what to take out to get past it
    text: str


def attempt(raw: object, into: type[T], *, lax: bool = False) -> tuple[T | None, Fault | None]:
    """The decoded value, or the first fault."""
    try:
        return msgspec.convert(raw, into, strict=not lax, dec_hook=_parse), None
    except msgspec.ValidationError as error:
        return None, _fault(str(error), raw, into)
    except UnicodeEncodeError:
        return None, Fault((), (), "holds half of a surrogate pair, which is no text")


def decode(raw: Any, into: type[T]) -> tuple[T | None, list[Problem]]:
    """Decodes; notes each fault, takes the bad part out and goes on, so that one run shows them all.

    What could not be read has its default in the value: use `touches` to leave out faults that only follow from that.
    """
    rest = raw
    problems: list[Problem] = []
    while len(problems) < FAULTS_MAX:
        value, fault = attempt(rest, into)
        if fault is None:
            return value, problems
        if rest is raw:
            import copy  # noqa: PLC0415 - only an error needs it

            rest = copy.deepcopy(raw)
        if not touches(fault.path, problems):
            problems.append((fault.path, fault.text))
        if not _remove(rest, fault.path):
            break
    return None, problems


def touches(path: Path, problems: Iterable[Problem]) -> bool:
    """Whether a fault is at or around a part that was already found bad."""
    return any(path[: len(other)] == other or other[: len(path)] == path for other, _ in problems)


def locate(text: str, problems: Iterable[Problem], sources: Mapping[Path, str] | None = None) -> list[str]:
    """Each problem with its line and path, in the order of the file. `sources`: what did not come from the file."""
    lines = documents.lines(text) if text else {}
    found = []
    for path, sentence in problems:
        if sources and path in sources:
            found.append((0, f"{sources[path]}: {sentence}"))
            continue
        line = next((lines[path[:cut]] for cut in range(len(path), 0, -1) if path[:cut] in lines), 0)
        place = ", ".join(part for part in (f"line {line}" if line else "", dotted(path)) if part)
        found.append((line, f"{place}: {sentence}" if place else sentence))
    return [sentence for _, sentence in sorted(found, key=lambda item: item[0])]


def _remove(raw: Any, path: Path) -> bool:
    """Whether there was something to remove: a decoder that stumbles for ever must be stopped."""
    if not path:
        return False
    for step in path[:-1]:
        raw = raw[step]
    there: bool = path[-1] in raw if isinstance(raw, dict) else raw[path[-1]] != {}
    if isinstance(raw, dict):
        raw.pop(path[-1], None)
    else:
        # Keeps the places of the others: an empty item decodes where a mapping is expected, and is not checked.
        raw[path[-1]] = {}
    return there


def dotted(path: Path) -> str:
    """`rules[0].match`"""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def did_you_mean(word: object, known: Iterable[str], *, also: Iterable[str] = ()) -> str:
    """The end of an error sentence: a guess, and what is known. `also` holds names to guess from, too many to list."""
    # Imported here: only an error needs it.
    from difflib import get_close_matches  # noqa: PLC0415 - see above

    names = sorted(set(known))
    close = get_close_matches(str(word), [*names, *also], n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"{hint} Known: {', '.join(names)}" if names else hint


def _parse(into: type[Any], raw: object) -> Any:
    """For types with a `parse` of their own, whose ValueError says what was expected."""
    return into.parse(raw)


# As text: compiled by the first error, not by every start.
_MESSAGE = r"(?s)(?P<what>.*?)(?: - at (?:`key` in )?`\$(?P<path>[^`]*)`)?"
_STEP = r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]"
_NAMES = {"int": "a whole number", "str": "text", "float": "a number", "object": "a mapping", "array": "a list"}
_NAMES |= {"bool": "true or false", "null": "nothing"}


def _fault(message: str, raw: object, into: Any) -> Fault:
    match = re.fullmatch(_MESSAGE, message)
    assert match is not None
    what, path = match["what"], match["path"] or ""
    value, infos = _walk(raw, into, path)
    at: Path = tuple(name or int(index) for name, index in re.findall(_STEP, path) if name or index.isdigit())
    quoted = re.search(r"`([^`]*)`|'([^']*)'", what)
    name = (quoted[1] or quoted[2] or "") if quoted else ""
    if unknown := re.search(r"unknown field `(.*)`", what, re.DOTALL):
        name = unknown[1]
        return Fault(at, (*at, name), f"unknown key {name!r}{did_you_mean(name, _keys(infos, value))}")
    if "missing required field" in what:
        text = f"the key {name!r} is missing"
    elif what.startswith("Invalid "):
        text = f"unknown value {value!r}{did_you_mean(value, _values(infos))}"
    elif what.startswith("Expected `") and ", got `" in what:
        parts = [part for part in name.split(" | ") if part != "null"] or ["null"]  # null: not given
        wanted = " or ".join(_NAMES.get(part, part) for part in parts)
        text = f"expected {wanted}, got {_short(value)}"
    else:
        said = re.sub(r"Expected `(\w+)`", lambda kind: f"expected {_NAMES.get(kind[1], kind[1])}", what)
        text = f"{said}, got {_short(value)}"
    return Fault(at, at, text)


def _short(value: object) -> str:
    return "nothing" if value is None else documents.short(value)


def _walk(raw: Any, into: Any, path: str) -> tuple[Any, list[Any]]:
    """The value at a path of the raw data, and the types that could stand there."""
    infos = list(_flat(_info(into)))
    above: list[Any] = []
    for name, index in re.findall(_STEP, path):
        above = infos
        if name:
            fields = [field for info in infos for field in getattr(info, "fields", ()) if field.encode_name == name]
            infos = [one for field in fields for one in _flat(field.type)]
            raw = raw.get(name) if isinstance(raw, dict) else None
        else:
            items = [getattr(info, "item_type", None) or getattr(info, "value_type", None) for info in infos]
            infos = [one for item in items if item is not None for one in _flat(item)]
            raw = raw[int(index)] if index.isdigit() and isinstance(raw, list | tuple) else _odd_one(raw)
    # A tag is not a field of its struct: the values it may have are the tags of the structs above it.
    return raw, infos or above


@cache  # a file with many faults asks once for each
def _info(into: Any) -> Any:
    import msgspec.inspect  # noqa: PLC0415 - only an error needs it

    return msgspec.inspect.type_info(into)


def _odd_one(raw: Any) -> Any:
    """The decoder does not say which value of a mapping is wrong. Ours hold text, so it is the one that is not."""
    return (
        next((value for value in raw.values() if not isinstance(value, str)), None) if isinstance(raw, dict) else None
    )


def _flat(info: Any) -> Iterator[Any]:
    if (plain := getattr(info, "type", None)) is not None:  # described with Meta
        yield from _flat(plain)
    else:
        yield from getattr(info, "types", ()) or (info,)


def _keys(infos: list[Any], value: Any) -> Iterator[str]:
    tagged = [info for info in infos if getattr(info, "tag_field", None)]
    for info in infos:
        if info in tagged and isinstance(value, dict) and value.get(info.tag_field) != info.tag:
            continue
        yield from (field.encode_name for field in getattr(info, "fields", ()))


def _values(infos: list[Any]) -> Iterator[str]:
    for info in infos:
        if hasattr(info, "cls") and hasattr(info.cls, "__members__"):
            yield from (str(member.value) for member in info.cls)
        elif getattr(info, "tag", None) is not None:
            yield str(info.tag)
