"""Every file below a directory whose path fits an expression is a device, as smarter-device-manager finds them.

A path is matched without the directory: `net/tun`. Its resource is named after it, in the attribute `resource`.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Annotated

import msgspec

from fairlead.backends.paths.found import Found, Kind, Look, base
from fairlead.kit.decoding import doc
from fairlead.kit.re2 import Regex
from fairlead.kit.text import encodable
from fairlead.model.device import DeviceNode
from fairlead.model.health import Cause

DEPTH_MAX = 10
FILES_MAX = 10_000
PATTERNS_MAX = 200
COUNT_MAX = 2**16
PATH_MAX = 255  # an expression is asked about no longer path: its work grows with it
# What others make and remove all the time, and no container is given as a device.
SKIPPED = frozenset({"fd", "hugepages", "mqueue", "pts", "shm"})
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_HEAD = re.compile(r"\^?((?:[\w-]+/)+)", re.ASCII)
_NUMBER = re.compile(r"\d+\Z", re.ASCII)


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    match: Annotated[str, doc("An expression of Go, found anywhere in the path unless it is anchored.")]
    count: Annotated[int, doc("How many slots each device has.")] = 1

    def faults(self) -> Iterator[str]:
        if not 0 <= self.count <= COUNT_MAX:
            yield f"count: {self.count} is not a number from 0 to {COUNT_MAX}"
        try:
            compiled(self.match)
        except ValueError as error:
            yield f"match: {self.match!r:.80} is no expression of Go: {error}"


class Tree(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finder. Of two patterns that fit one file, the later one counts."""

    matches: Annotated[tuple[Pattern, ...], doc("Which files. Of two that fit, the later one counts.")]
    directory: Annotated[str, doc("Where to look.")] = "/dev"
    depth: Annotated[int, doc("How many directories deep.")] = DEPTH_MAX
    nodes: Annotated[
        tuple[str, ...] | None, doc("Device nodes that a container gets, if they exist; left out, the file itself.")
    ] = None
    characters: Annotated[bool, doc("The id of slot n is the character n, as smarter-device-manager 1.20 has it.")] = (
        False
    )

    @property
    def fields(self) -> tuple[str, ...]:
        return ("name", "path", "number")

    def faults(self) -> Iterator[str]:
        if not self.directory.startswith("/") or ".." in self.directory.split("/"):
            yield f"directory: {self.directory!r:.80} is not an absolute path"
        if not 0 <= self.depth <= DEPTH_MAX:
            yield f"depth: {self.depth} is not a number from 0 to {DEPTH_MAX}"
        if not 0 < len(self.matches) <= PATTERNS_MAX:
            yield f"matches: give 1 to {PATTERNS_MAX}"
        for place, pattern in enumerate(self.matches):
            yield from (f"matches[{place}].{fault}" for fault in pattern.faults())

    def patterns(self) -> Iterable[str]:
        """The directory, and those that expressions begin with; what comes elsewhere is seen by the next poll."""
        yield f"{self.directory}/*"
        heads = (_HEAD.match(pattern.match) for pattern in self.matches if self.depth)
        yield from (f"{self.directory}/{head[1]}*" for head in heads if head)

    def find(self, look: Look) -> Iterator[Found]:
        paths = list(islice(self._walk(look, self.directory, "", self.depth), FILES_MAX + 1))
        if len(paths) > FILES_MAX:
            look.problems.append(f"{self.directory} has more than {FILES_MAX:,} files; those after them are not seen")
        patterns = tuple(pattern.match for pattern in self.matches)
        for path in sorted(paths[:FILES_MAX]):
            place = _last_fit(patterns, path)
            if place is not None and (count := self.matches[place].count):
                yield from self._found(look, path, count)

    def health(self, look: Look, found: Found) -> Cause | None:  # noqa: ARG002 - its file says all
        return None

    def _walk(self, look: Look, directory: str, above: str, depth: int) -> Iterator[str]:
        """Links are seen and not followed: a loop of them would not end."""
        for name in look.root.names(directory, look.failed):
            path = f"{above}{name}"
            if len(path) > PATH_MAX or (not above and name in SKIPPED):
                continue
            yield path
            state = look.root.stat(f"{directory}/{name}", look.failed) if depth else None
            if state is not None and stat.S_ISDIR(state.st_mode):
                yield from self._walk(look, f"{directory}/{name}", f"{path}/", depth - 1)

    def _found(self, look: Look, path: str, count: int) -> Iterator[Found]:
        whole = f"{self.directory}/{path}"
        state = look.see(whole)
        if state.kind not in {Kind.DEVICE, Kind.DIRECTORY}:
            if state.kind:
                look.problems.append(f"{encodable(whole)} is a {state.kind}, not a device; it is left out")
            return
        name = _UNFIT.sub("_", path)
        number = _NUMBER.search(path)
        names = {"name": name, "path": path, "number": number[0] if number else ""}
        nodes = [DeviceNode(encodable(whole), encodable(whole))]
        if self.nodes is not None:
            nodes = [DeviceNode(node) for node in self.nodes if look.see(node).kind]
        yield Found(
            identity=whole,
            names=names,
            states=(state,),
            index=number[0] if number and self.nodes is not None else base(path),
            attributes={"resource": name, "number": names["number"]},
            nodes=tuple(nodes),
            slots=tuple(chr(one) if self.characters else str(one) for one in range(count)),
        )


@lru_cache(maxsize=PATTERNS_MAX)
def compiled(pattern: str) -> Regex:
    return Regex(pattern)


@lru_cache(maxsize=2 * FILES_MAX)  # expressions are slow: all that one scan asks is known to the next
def _last_fit(patterns: tuple[str, ...], path: str) -> int | None:
    places = reversed(range(len(patterns)))
    return next((place for place in places if compiled(patterns[place]).search(path)), None)
