"""Finds devices by path: what a path or a glob stands for is a device, or in a group a part of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from fairlead.backends.paths.found import WILDCARD, Found, Look, PathState, base, parent
from fairlead.backends.paths.spec import Entry
from fairlead.model.health import Cause


class Globs:
    """The identity is the path: a link, such as /dev/serial/by-id/..., keeps it wherever the device is plugged in."""

    fields = ("name", "dir")

    def __init__(self, entry: Entry, entries: Sequence[Entry]) -> None:
        self._entry = entry
        self._unclear = _is_unclear(entry, entries)

    def faults(self) -> Iterator[str]:
        yield from ()  # those of `paths` are the entry's

    def find(self, look: Look) -> Iterator[Found]:
        yield from self._group(look) if self._entry.group else self._singles(look)

    def health(self, look: Look, found: Found) -> Cause | None:  # noqa: ARG002 - a path has no more than its file
        return None

    def patterns(self) -> Iterable[str]:
        return self._entry.paths

    def _singles(self, look: Look) -> Iterator[Found]:
        for state in (state for pattern in self._entry.paths for state in self._states(pattern, look)):
            if state.kind or not self._entry.optional:
                yield self._found((state,), state.path, () if state.kind else (state.path,), state.real or state.path)

    def _group(self, look: Look) -> Iterator[Found]:
        states = {pattern: tuple(self._states(pattern, look)) for pattern in self._entry.paths}
        missing = tuple(pattern for pattern, some in states.items() if not any(state.kind for state in some))
        if not (missing and self._entry.optional):
            every = tuple(dict.fromkeys(state for some in states.values() for state in some))
            yield self._found(every, self._entry.name, missing)

    def _states(self, pattern: str, look: Look) -> Iterator[PathState]:
        """What a pattern stands for: with wildcards what fits, without them the path, whatever is there."""
        for path in look.matches(pattern):
            state = look.see(path)
            if state.kind in self._entry.allow or not WILDCARD.search(pattern):
                yield state

    def _found(self, states: tuple[PathState, ...], origin: str, missing: tuple[str, ...], key: str = "") -> Found:
        name = base(origin)
        return Found(
            identity=origin,
            names={"name": name, "dir": base(parent(origin))},
            states=states,
            index=name,
            suffixed=self._unclear,
            key=key,
            missing=missing,
        )


def _is_unclear(entry: Entry, entries: Sequence[Entry]) -> bool:
    """Whether two paths in different places may end up with one name. Decided by the patterns alone.

    What happens to be there at the moment must not matter: after a restart the same path must have the same id.
    """
    if entry.group:
        return False
    if "{name}" not in entry.name:
        return len(entry.paths) > 1 or any(WILDCARD.search(pattern) for pattern in entry.paths)
    shown = 2 if "{dir}" in entry.name else 1  # parts of a path that its name has
    if any(WILDCARD.search(_split(pattern, shown)[0]) for pattern in entry.paths):
        return True
    mine = [_split(pattern, shown) for pattern in entry.paths]
    others = [_split(path, shown) for one in entries if not one.group and one.name == entry.name for path in one.paths]
    return any(above != beside and _may_meet(one, other) for above, one in mine for beside, other in others)


def _split(pattern: str, shown: int) -> tuple[str, str]:
    above = pattern
    for _ in range(shown):
        above = parent(above)
    return above, pattern.removeprefix(above)


def _may_meet(one: str, other: str) -> bool:
    """Whether two globs may match the same name; rather yes than no."""
    heads = WILDCARD.split(one)[0], WILDCARD.split(other)[0]
    if heads[0] == one and heads[1] == other:
        return one == other
    if heads[0] == one or heads[1] == other:
        return fnmatchcase(one, other) or fnmatchcase(other, one)
    return heads[0].startswith(heads[1]) or heads[1].startswith(heads[0])
