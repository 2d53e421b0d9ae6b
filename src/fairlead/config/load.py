"""Reads a configuration and names every fault at once, each with its line, the bad value and a way out."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from fairlead.backends import documents, files, strict
from fairlead.backends.documents import Path
from fairlead.config.compile import Problem, check, compile_rules
from fairlead.config.settings import Override
from fairlead.config.spec import Config
from fairlead.model.errors import ConfigError
from fairlead.policy.rules import Rule

if TYPE_CHECKING:
    from fairlead.policy.amounts import Amount

FAULTS_MAX = 50  # nobody reads more at once


class Loaded(Struct, frozen=True):
    """A configuration that holds, where it came from, and its rules."""

    config: Config
    rules: tuple[Rule, ...]
    source: str
    text: str = ""
    overrides: tuple[Override, ...] = ()
    amounts: tuple[Amount, ...] = ()


def load(path: str, overrides: Sequence[Override] = ()) -> Loaded:
    try:
        text = files.read_text(path)
    except FileNotFoundError:
        raise ConfigError(
            path, ["there is no such file. Give one with --config; `fairlead config show --example` prints one"]
        ) from None
    except OSError as error:
        raise ConfigError(path, [f"cannot be read: {error.strerror or error}"]) from None
    return parse(text, path, overrides)


def parse(text: str, source: str, overrides: Sequence[Override] = ()) -> Loaded:
    raw = documents.parse(text, source)
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        raise ConfigError(
            source, [f"expected a mapping with keys such as backends and rules, got {type(raw).__name__}"]
        )
    return build(raw, source, overrides, text)


def build(raw: dict[str, Any], source: str, overrides: Sequence[Override] = (), text: str = "") -> Loaded:
    """The same checks for a configuration made by code. `text` is what lines are counted in."""
    problems, sources = _apply(raw, overrides)
    config, faults = _convert(raw)
    problems += faults
    if config is not None:
        taken = {path for path, _ in problems}
        # A part that could not be read stands at its default now: what follows from that is not the writer's fault.
        wrong = [*check(config), *_amounts(config)[1]]
        problems += [(path, text) for path, text in wrong if not _touches(path, taken)]
    if problems or config is None:
        raise ConfigError(source, located(text, problems, sources))
    return Loaded(config, compile_rules(config)[0], source, text, tuple(overrides), _amounts(config)[0])


def needs_cluster(config: Config) -> bool:
    """Whether a part of it speaks to the API server."""
    return bool(config.amounts or config.cluster.unhealthy or any(rule.assign for rule in config.rules))


def _amounts(config: Config) -> tuple[tuple[Amount, ...], list[Problem]]:
    if not config.amounts:
        return (), []
    from fairlead.config.amounts import compile_amounts  # noqa: PLC0415 - few daemons have some

    return compile_amounts(config)


def _apply(raw: dict[str, Any], overrides: Iterable[Override]) -> tuple[list[Problem], dict[Path, str]]:
    problems: list[Problem] = []
    sources: dict[Path, str] = {}
    for override in overrides:
        here = raw
        for step in override.path[:-1]:
            below = here.setdefault(step, {})
            if not isinstance(below, dict):
                break  # the decoder will say what is wrong with it
            here = below
        else:
            here[override.path[-1]] = override.value
            sources[override.path] = override.source
    return problems, sources


def _convert(raw: dict[str, Any]) -> tuple[Config | None, list[Problem]]:
    """Decodes; on a fault notes it, takes the bad part out and goes on, so that one run shows them all."""
    rest = copy.deepcopy(raw)
    problems: list[Problem] = []
    while len(problems) < FAULTS_MAX:
        config, fault = strict.attempt(rest, Config)
        if fault is None:
            return config, problems
        if not _touches(fault.path, {path for path, _ in problems}):
            problems.append((fault.path, fault.text))
        if not _remove(rest, fault.path):
            return None, problems
    return None, problems


def _touches(path: Path, taken: Iterable[Path]) -> bool:
    """Whether a fault is at or around a part that was already found bad."""
    return any(path[: len(other)] == other or other[: len(path)] == path for other in taken)


def _remove(raw: Any, path: Path) -> bool:
    if not path:
        return False
    for step in path[:-1]:
        raw = raw[step]
    if isinstance(raw, list):
        # Keep the places of the others: an empty item decodes where a mapping is expected, and is not checked.
        return _blank(raw, path[-1])
    if path[-1] not in raw:
        return False  # nothing to get past it with: a decoder that stumbles for ever must be stopped
    del raw[path[-1]]
    return True


def _blank(items: list[Any], place: Any) -> bool:
    if items[place] == {}:
        return False
    items[place] = {}
    return True


def located(text: str, problems: Iterable[Problem], sources: Mapping[Path, str] | None = None) -> list[str]:
    """Each problem with its line and path, in the order of the file."""
    lines = documents.lines(text) if text else {}
    found = []
    for path, sentence in problems:
        where = strict.dotted(path)
        if sources and path in sources:
            found.append((0, f"{sources[path]}: {sentence}"))
            continue
        line = next((lines[path[:cut]] for cut in range(len(path), 0, -1) if path[:cut] in lines), 0)
        place = ", ".join(part for part in (f"line {line}" if line else "", where) if part)
        found.append((line, f"{place}: {sentence}" if place else sentence))
    return [sentence for _, sentence in sorted(found, key=lambda item: item[0])]


def schema() -> dict[str, Any]:
    """JSON Schema of the file."""

    def hook(kind: type) -> dict[str, Any]:
        if kind in {strict.Seconds, strict.Bytes}:
            example = "60s" if kind is strict.Seconds else "80GiB"
            return {"anyOf": [{"type": "string"}, {"type": "number", "minimum": 0}], "examples": [example]}
        raise NotImplementedError

    made = msgspec.json.schema(Config, schema_hook=hook)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Fairlead configuration", **made}
