"""Documents that others write: YAML and JSON, as plain data within bounds.

PyYAML composes and constructs by recursion, shares what an alias names and multiplies what a merge key names: some
hundred bytes can take all memory, and 60 KB of `[` end the process. Here its parser gives events only, which it does
without recursion, and a loop makes the data: mappings, lists, text, numbers, true, false and null. What an alias
names is copied and counted, so that nothing that reads the data later meets more than was counted here.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from fairlead.kit import files
from fairlead.model.errors import ConfigError

Path = tuple[str | int, ...]  # into decoded data


class Limits(Struct, frozen=True):
    bytes: int = files.MAX_BYTES
    depth: int = 64
    nodes: int = 50_000  # with everything that aliases repeat
    text: int = 64 * 1024  # characters of one key or value
    number: int = 64  # characters of one number
    directives: int = 16  # lines that begin with %: the parser compares each with all others
    seconds: float = 10.0


LIMITS = Limits()

# What YAML does not allow. Three sets: as one it takes 5 ms to compile, at every start of a daemon.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]|[\ud800-\udfff]|[\ufffe\uffff]")
_BOM = "\ufeff"
_TAG = "tag:yaml.org,2002:"
_NO_KEY = object()
_MERGE = object()
_CHECK_EVERY = 256  # nodes between two looks at the clock


def read(path: str | os.PathLike[str], limits: Limits = LIMITS) -> Any:
    """The one document of a file. Whatever is wrong with the file or its text is a ConfigError."""
    try:
        text = files.read_text(path, limits.bytes)
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror or error}"]) from None
    return parse(text, str(path), limits=limits)


def parse(text: str | bytes, source: str, *, loose: bool = False, limits: Limits = LIMITS) -> Any:
    """The one document of a text. `loose` as Go programs read it: the first document, and the last of two equal keys.

    JSON is YAML too, and is read without loading 20 ms of YAML.
    """
    plain = _decode(text, source, limits)
    if not loose and (found := _as_json(plain, limits)) is not None:
        return found
    return _Reader(plain, source, limits, loose=loose).document()


def to_yaml(data: Any) -> str:
    """Plain data as YAML, keys in their order, text of several lines as it stands."""
    import yaml  # noqa: PLC0415 - slow to load

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - whatever it is: a reader wants it written out
            return True

    def show(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar(f"{_TAG}str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, show)
    return str(yaml.dump(data, Dumper=Dumper, sort_keys=False))


def lines(text: str) -> dict[Path, int]:
    """The line on which each part of a document begins; nothing for what is no document."""
    found: dict[Path, int] = {}
    try:
        _Reader(_decode(text, "", LIMITS), "", LIMITS, lines=found).document()
    except ConfigError:  # JSON that is no YAML, such as one with a tab between its words
        return {}
    return found


def _decode(text: str | bytes, source: str, limits: Limits) -> str:
    if len(text) > limits.bytes:
        raise ConfigError(source, [f"it has more than {limits.bytes:,} bytes, which are the limit"])
    try:
        plain = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(source, [f"line {line}: it is not UTF-8 text"]) from None
    plain = plain.removeprefix(_BOM)
    if bad := _FORBIDDEN.search(plain):
        line, column = plain.count("\n", 0, bad.start()) + 1, bad.start() - plain.rfind("\n", 0, bad.start())
        what = f"the character U+{ord(bad[0]):04X} is not allowed. Remove it, or write it as an escape in double quotes"
        raise ConfigError(source, [f"line {line}, column {column}: {what}"])
    return plain


def _as_json(text: str, limits: Limits) -> dict[str, Any] | None:
    """A JSON object within the limits, or None for anything that YAML must look at, and name the fault of."""
    if not text.lstrip().startswith("{"):
        return None
    import json  # noqa: PLC0415 - only JSON needs it

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ValueError
        return made

    try:
        found = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and _fits(found, limits) else None


def _fits(document: Any, limits: Limits) -> bool:
    level, count = [document], 1
    for _ in range(limits.depth + 1):
        level = [part for whole in level for part in _parts(whole)]
        count += len(level)
        if not level:
            return True
        if count > limits.nodes or any(_is_odd(part, limits) for part in level):
            return False
    return False


def _parts(whole: Any) -> Iterator[Any]:
    if isinstance(whole, dict):
        yield from whole
        yield from whole.values()
    elif isinstance(whole, list):
        yield from whole


def _is_odd(part: Any, limits: Limits) -> bool:
    if isinstance(part, str):
        return len(part) > limits.text or _is_broken(part)
    if isinstance(part, float):
        return not float("-inf") < part < float("inf")
    return isinstance(part, int) and abs(part) >= 10**limits.number


def _is_broken(text: str) -> bool:
    """Whether it holds half of a surrogate pair, which no encoding takes."""
    return not text.isascii() and re.search("[\ud800-\udfff]", text) is not None


class _Frame:
    """A list or a mapping that is not complete yet."""

    __slots__ = ("anchor", "before", "height", "key", "made", "merges", "path", "seen")

    def __init__(self, made: dict[Any, Any] | list[Any], anchor: str | None, before: int, path: Path) -> None:
        self.made = made
        self.anchor = anchor
        self.before = before  # nodes that were counted when it began
        self.path = path
        self.height = 1
        self.key: Any = _NO_KEY
        self.seen: set[str] = set()
        self.merges: list[Any] = []


class _Anchored(Struct, frozen=True):
    value: Any
    nodes: int
    height: int


class _Reader:
    def __init__(
        self, text: str, source: str, limits: Limits, *, loose: bool = False, lines: dict[Path, int] | None = None
    ) -> None:
        import yaml  # noqa: PLC0415 - JSON needs it not

        self._yaml = yaml
        self._source = source
        self._limits = limits
        self._loose = loose
        self._lines = lines
        self._until_s = time.monotonic() + limits.seconds
        self._count = 0
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchored | None] = {}  # None: not complete yet
        if len(re.findall(r"^%", text, re.MULTILINE)) > limits.directives:
            raise ConfigError(source, [f"it has more than {limits.directives} lines that begin with %"])
        self._loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)

    def document(self) -> Any:
        try:
            return self._document()
        except self._yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            raise self._fault(mark, str(error.problem or error)) from None
        except self._yaml.YAMLError as error:
            raise self._fault(None, " ".join(str(error).split())) from None
        finally:
            self._loader.dispose()

    def _document(self) -> Any:
        yaml = self._yaml
        self._loader.get_event()  # the start of the stream
        if isinstance(self._loader.get_event(), yaml.StreamEndEvent):
            return None
        made = self._root()
        self._loader.get_event()  # the end of the document
        if not self._loose and not isinstance(event := self._loader.get_event(), yaml.StreamEndEvent):
            raise self._fault(event.start_mark, "another document begins here. Give one document only")
        return made

    def _root(self) -> Any:
        yaml = self._yaml
        while True:
            event = self._loader.get_event()
            if isinstance(event, yaml.ScalarEvent):
                value = self._scalar(event)
                self._keep(event.anchor, value, 1, 1)
                height = 1
            elif isinstance(event, yaml.AliasEvent):
                value, height = self._alias(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._open(event)
                continue
            else:
                frame = self._stack.pop()
                value, height = self._close(frame, event), frame.height
                self._keep(frame.anchor, value, self._count - frame.before + 1, height)
            if not self._stack:
                return value if value is not _MERGE else "<<"
            self._place(event, value, height)

    def _tally(self, event: Any, nodes: int = 1) -> None:
        before = self._count // _CHECK_EVERY
        self._count += nodes
        if self._count > self._limits.nodes:
            raise self._fault(
                event.start_mark, f"more than {self._limits.nodes:,} values, counting what aliases repeat"
            )
        if self._count // _CHECK_EVERY != before and time.monotonic() > self._until_s:
            raise self._fault(event.start_mark, f"to read so far took {self._limits.seconds:g} s. Make it simpler")

    def _open(self, event: Any) -> None:
        is_list = isinstance(event, self._yaml.SequenceStartEvent)
        self._tally(event)
        tag = event.tag
        if tag not in {None, "!", _TAG + ("seq" if is_list else "map")}:
            raise self._fault(event.start_mark, f"the tag {short(tag)} is not supported. Remove it")
        if len(self._stack) >= self._limits.depth:
            raise self._too_deep(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        path = self._here() if self._lines is not None else ()
        if self._stack and isinstance(self._stack[-1].made, list):
            self._locate(event)
        self._stack.append(_Frame([] if is_list else {}, event.anchor, self._count, path))

    def _alias(self, event: Any) -> tuple[Any, int]:
        if event.anchor not in self._anchors:
            raise self._fault(event.start_mark, f"no anchor &{event.anchor!s:.60} stands before this alias")
        found = self._anchors[event.anchor]
        if found is None:
            raise self._fault(event.start_mark, f"*{event.anchor!s:.60} stands for a part that holds this alias itself")
        self._tally(event, found.nodes)
        if len(self._stack) + found.height - 1 > self._limits.depth:
            raise self._too_deep(event)
        return _copy(found.value), found.height

    def _keep(self, anchor: str | None, value: Any, nodes: int, height: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = _Anchored("<<" if value is _MERGE else value, nodes, height)

    def _place(self, event: Any, value: Any, height: int) -> None:
        """Puts a complete value into the list or mapping that it belongs to."""
        frame = self._stack[-1]
        frame.height = max(frame.height, height + 1)
        if isinstance(frame.made, list):
            if isinstance(event, self._yaml.ScalarEvent | self._yaml.AliasEvent):
                self._locate(event)
            frame.made.append("<<" if value is _MERGE else value)
        elif frame.key is _NO_KEY:
            self._take_key(frame, event, value)
        elif frame.key is _MERGE:
            frame.merges += self._merged(event, value)
            frame.key = _NO_KEY
        else:
            frame.made[frame.key] = "<<" if value is _MERGE else value
            frame.key = _NO_KEY

    def _take_key(self, frame: _Frame, event: Any, key: Any) -> None:
        if isinstance(key, dict | list):
            raise self._fault(event.start_mark, "a list or a mapping stands as a key. A key must be text")
        frame.key = key
        if key is _MERGE:
            return
        if not self._loose and (key in frame.made or str(key) in frame.seen):
            raise self._fault(event.start_mark, f"the key {short(key)} is given twice")
        frame.seen.add(str(key))
        self._locate(event)

    def _merged(self, event: Any, value: Any) -> list[dict[Any, Any]]:
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, dict) for part in parts):
            raise self._fault(event.start_mark, "<< takes a mapping or a list of mappings")
        return parts

    def _close(self, frame: _Frame, event: Any) -> Any:
        if not frame.merges:
            return frame.made
        made: dict[Any, Any] = {}
        for part in reversed(frame.merges):  # the first of them wins
            made.update(part)
        made.update(frame.made)
        self._tally(event, len(made))
        return made

    def _scalar(self, event: Any) -> Any:
        self._tally(event)
        text, tag = event.value, event.tag
        if len(text) > self._limits.text:
            raise self._fault(event.start_mark, f"text of {len(text):,} characters; {self._limits.text:,} is the limit")
        if _is_broken(text):
            raise self._fault(event.start_mark, "holds half of a surrogate pair, which is no text")
        if tag in {None, "!"}:
            tag = self._loader.resolve(self._yaml.ScalarNode, text, event.implicit)
        kind = tag.removeprefix(_TAG)
        if tag == kind or kind not in _SCALARS:
            raise self._fault(event.start_mark, f"the tag {short(tag)} is not supported. Remove it")
        if kind in {"int", "float"}:
            if ":" in text:
                return text  # `1:30` was ninety to YAML 1.1, and means a partition to people
            if len(text) > self._limits.number:
                longest = f"a number of {len(text):,} characters; {self._limits.number} is the limit"
                raise self._fault(event.start_mark, f"{longest}. Put it into quotes if it is text")
        try:
            return _SCALARS[kind](self._loader, self._yaml.ScalarNode(tag, text))
        except (LookupError, ValueError, ArithmeticError):
            raise self._fault(event.start_mark, f"this is no {_KIND_WORDS[kind]}") from None

    def _here(self) -> Path:
        """Where the next value belongs."""
        if not self._stack:
            return ()
        frame = self._stack[-1]
        step = len(frame.made) if isinstance(frame.made, list) else frame.key
        return (*frame.path, step)

    def _locate(self, event: Any) -> None:
        if self._lines is not None:
            self._lines[self._here()] = event.start_mark.line + 1

    def _too_deep(self, event: Any) -> ConfigError:
        return self._fault(event.start_mark, f"it is nested too deeply: {self._limits.depth} levels are the limit")

    def _fault(self, mark: Any, text: str) -> ConfigError:
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        return ConfigError(self._source, [f"{where}{text}"])


# By tag, without its prefix. A date is the text that it is written as: nothing here has a use for another kind.
_SCALARS: dict[str, Callable[[Any, Any], Any]] = {
    "null": lambda _loader, _node: None,
    "bool": lambda loader, node: loader.construct_yaml_bool(node),
    "int": lambda loader, node: loader.construct_yaml_int(node),
    "float": lambda loader, node: loader.construct_yaml_float(node),
    "str": lambda _loader, node: node.value,
    "timestamp": lambda _loader, node: node.value,
    "value": lambda _loader, node: node.value,
    "merge": lambda _loader, _node: _MERGE,
}

_KIND_WORDS = {"bool": "true or false", "int": "whole number", "float": "number"}


def _copy(value: Any) -> Any:
    """A copy of plain data. Its depth and size are counted."""
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return [_copy(part) for part in value] if isinstance(value, list) else value


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
