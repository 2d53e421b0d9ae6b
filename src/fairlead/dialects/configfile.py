"""Config files of other systems, by the keys of their table of flags.

A file takes three steps: `kit/documents.py` reads it within bounds, what a Go program overlooks in it is repaired or
dropped here, and the strict decoder names all that is still wrong. Knows no dialect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, UnsetType

from fairlead.dialects.goflags import Flag, Kind, duration
from fairlead.kit import decoding, documents, files
from fairlead.kit.decoding import Problem
from fairlead.kit.documents import Path
from fairlead.model.errors import ConfigError


class BadFile(ConfigError):
    exit_code = 1  # as the Go programs end


class GoDuration(float):
    """Text such as 60s, or infinite; a plain number is in nanoseconds."""

    __slots__ = ()

    @classmethod
    def parse(cls, raw: object) -> GoDuration:
        if isinstance(raw, int | float) and not isinstance(raw, bool):
            return cls(raw * 1e-9)
        try:
            return cls(duration(raw if isinstance(raw, str) else ""))
        except ValueError:
            raise ValueError("expected a duration such as 60s, or infinite") from None


class ByHand(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A part that the Go program decodes by hand: the case of its keys counts, and null is a value."""


class Document(Struct, frozen=True):
    """A file that was decoded. Parts that could not be read are missing, and among the problems."""

    content: Any
    problems: list[Problem]
    dropped: list[Path]  # unknown keys that were overlooked

    def values(self, flags: Iterable[Flag]) -> dict[str, Any]:
        """What the file has for flags, by their keys; only what is given."""
        found = {}
        for flag in flags:
            value = self.content if flag.key else UNSET
            for step in flag.key.split("."):
                value = getattr(value, _identifier(step), UNSET)
            if value is not UNSET:
                value = (value,) if flag.kind is Kind.TEXTS and isinstance(value, str) else value
                found[flag.key] = tuple(value) if isinstance(value, list) else value
        return found


_TYPES: Mapping[Kind, Any] = {
    Kind.TEXT: str,
    Kind.BOOL: bool,
    Kind.TEXTS: str | list[str],
    Kind.INTS: list[int],
    Kind.INT: int,
    Kind.DURATION: GoDuration,
}


def shape(name: str, flags: Iterable[Flag], sections: Mapping[str, Any]) -> type[Struct]:
    """The struct that the keys of a table make, with sections that are no flags. What is not given is UNSET."""
    tree: dict[str, Any] = dict(sections)
    for flag in flags:
        *above, last = flag.key.split(".")
        here = tree
        for step in above:
            here = here.setdefault(step, {})
        if last:
            here[last] = _TYPES[flag.kind]
    return _struct(name, tree)


def _struct(name: str, tree: Mapping[str, Any]) -> type[Struct]:
    kinds = {key: _struct(key, kind) if isinstance(kind, dict) else kind for key, kind in tree.items()}
    fields = [(_identifier(key), kind | UnsetType, UNSET) for key, kind in kinds.items()]
    names = {_identifier(key): key for key in kinds}
    return msgspec.defstruct(name, fields, frozen=True, forbid_unknown_fields=True, rename=names)


def _identifier(key: str) -> str:
    return key.replace("-", "_")


def load(path: str, failed: str, cure: str = "Correct --config-file or CONFIG_FILE") -> str:
    """The text of a file. BadFile, which begins with `failed`, when it cannot be read."""
    try:
        return files.read_text(path)
    except OSError as error:
        reason = error.strerror or error
        raise BadFile(path, [f"{failed}: {reason}. {cure}"]) from None


def decode(text: str, source: str, into: type[Struct], *, expected: str, lenient: bool, loose: bool) -> Document:
    """BadFile for what is no document. `loose`: as `documents.parse`."""
    try:
        raw = documents.parse(text, source, loose=loose)
    except ConfigError as error:
        raise BadFile(source, error.problems) from None
    if not isinstance(raw, dict | None):
        raise BadFile(source, [f"expected keys such as {expected}, got {type(raw).__name__}"])
    dropped: list[Path] = []
    content, problems = decoding.decode(as_go(raw or {}, into, (), dropped, lenient=lenient), into)
    return Document(content, problems, dropped)


def as_go(raw: Any, kind: Any, at: Path, dropped: list[Path], *, lenient: bool) -> Any:
    """The data as Go's decoder takes it: null is not given; to the lenient, keys in any case, and only known ones."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind  # described for the reference
    members = get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)
    if isinstance(raw, list):
        inner = next((get_args(one)[0] for one in members if get_origin(one) in {list, tuple}), None)
        return [as_go(part, inner, (*at, number), dropped, lenient=lenient) for number, part in enumerate(raw)]
    into = next((one for one in members if isinstance(one, type) and issubclass(one, Struct)), None)
    if into is None or not isinstance(raw, dict):
        return raw
    by_hand = issubclass(into, ByHand)
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(into)}
    folded = {name.lower(): name for name in fields}
    made: dict[str, Any] = {}
    for key, value in raw.items():
        name = folded.get(str(key).lower(), "") if lenient and not by_hand else str(key)
        if name not in fields and lenient:
            dropped.append((*at, str(key)))
        elif value is not None or by_hand or name not in fields:
            made[name] = as_go(value, fields.get(name), (*at, name), dropped, lenient=lenient)
    return made
