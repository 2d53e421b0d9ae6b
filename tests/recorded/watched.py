"""A recording that remembers which of its keys are read, so that none is left without a comparison or a reason.

A key is named by its way from the top, such as `outputs.answers[].rpc`. A map whose keys are data, such as ids or
labels, is one key: its value is `*`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
See = Callable[[str], None]


class Ways:
    """Names keys. `maps`: expressions for ways whose keys are data."""

    def __init__(self, *maps: str) -> None:
        self._maps = [re.compile(one) for one in maps]

    def step(self, way: str, key: str) -> str:
        data = any(one.fullmatch(way) for one in self._maps)
        return f"{way}.{'*' if data else key}".lstrip(".")

    def of(self, value: object, way: str = "") -> set[str]:
        """All keys in a value that came from JSON."""
        if isinstance(value, Mapping):
            ways = {key: self.step(way, key) for key in value}
            return set(ways.values()).union(*(self.of(value[key], one) for key, one in ways.items()))
        if isinstance(value, list):
            return set().union(*(self.of(one, f"{way}[]") for one in value))
        return set()


def watched(case: T, ways: Ways, seen: set[str]) -> T:
    """The same, to whoever reads it."""
    found: T = _wrap(case, "", ways, seen.add)
    return found


def cover(cases: Mapping[str, set[str]], sizes: Mapping[str, int]) -> list[str]:
    """A few cases that have every key among them, small ones rather than large ones."""
    left, chosen = set().union(*cases.values()), []
    while left:
        chosen.append(max(cases, key=lambda name: len(cases[name] & left) / sizes[name]))
        left -= cases[chosen[-1]]
    return chosen


def _wrap(value: Any, way: str, ways: Ways, see: See) -> Any:
    if isinstance(value, msgspec.Struct):
        return _Struct(value, way, ways, see)
    if isinstance(value, dict):
        return _Map(value, way, ways, see)
    if isinstance(value, list):
        return [_wrap(one, f"{way}[]", ways, see) for one in value]
    return value


class _Map(dict[str, Any]):  # noqa: PLW1641 - as unhashable as a dict
    """Every way to look into a dict, watched. What C code takes without asking is not."""

    def __init__(self, value: Mapping[str, Any], way: str, ways: Ways, see: See) -> None:
        self._name = lambda key: ways.step(way, key)
        self._see = see
        super().__init__({key: _wrap(one, self._name(key), ways, see) for key, one in value.items()})

    def __getitem__(self, key: str) -> Any:
        self._see(self._name(key))
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._see(self._name(key))
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._see(self._name(str(key)))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:  # and so dict(it), {**it} and f(**it) ask for each key
        yield from super().__iter__()

    def keys(self) -> Any:
        return list(self)

    def items(self) -> Any:
        return [(key, self[key]) for key in super().__iter__()]

    def values(self) -> Any:
        return [self[key] for key in super().__iter__()]

    def __eq__(self, other: object) -> bool:
        return {key: self[key] for key in super().__iter__()} == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __or__(self, other: Any) -> Any:
        return dict(self) | other


class _Struct:
    def __init__(self, value: msgspec.Struct, way: str, ways: Ways, see: See) -> None:
        self._of = (value, way, ways, see)

    def __getattr__(self, name: str) -> Any:
        value, way, ways, see = self._of
        fields: Sequence[str] = value.__struct_fields__
        if name not in fields:
            member: Any = getattr(type(value), name)
            return member.__get__(self)
        here = ways.step(way, value.__struct_encode_fields__[fields.index(name)])
        see(here)
        return _wrap(getattr(value, name), here, ways, see)
