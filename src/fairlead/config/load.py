"""Reads a configuration and names every fault at once, each with its line, the bad value and a way out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from fairlead.config.compile import check
from fairlead.config.settings import Override
from fairlead.config.spec import Config
from fairlead.kit import decoding, documents, files
from fairlead.kit.decoding import Problem
from fairlead.kit.documents import Path
from fairlead.model.errors import ConfigError
from fairlead.policy.offering.rules import Rule

if TYPE_CHECKING:
    from fairlead.policy.offering.amounts import Amount


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
    except IsADirectoryError:
        raise ConfigError(
            path, ["is a directory. Name a file in it, or the node's label that does: --config-label"]
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
    sources = _apply(raw, overrides)
    config, problems = decoding.decode(raw, Config)
    rules: tuple[Rule, ...] = ()
    amounts: tuple[Amount, ...] = ()
    if config is not None:
        rules, wrong = check(config)
        amounts, wrong_amounts = _amounts(config)
        # A part that could not be read stands at its default now: what follows from that is not the writer's fault.
        problems += [one for one in [*wrong, *wrong_amounts] if not decoding.touches(one[0], problems)]
    if problems or config is None:
        raise ConfigError(source, decoding.locate(text, problems, sources))
    return Loaded(config, rules, source, text, tuple(overrides), amounts)


def needs_cluster(config: Config) -> bool:
    """Whether a part of it speaks to the API server."""
    cluster = config.cluster
    reports = cluster.unhealthy or cluster.condition or cluster.events or cluster.annotate or cluster.devices
    return bool(config.amounts or reports or any(rule.assign for rule in config.rules))


def _amounts(config: Config) -> tuple[tuple[Amount, ...], list[Problem]]:
    if not config.amounts:
        return (), []
    from fairlead.config.amounts import compile_amounts  # noqa: PLC0415 - few daemons have some

    return compile_amounts(config)


def _apply(raw: dict[str, Any], overrides: Iterable[Override]) -> dict[Path, str]:
    """Puts overrides in their places; what gave each, for errors."""
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
    return sources


def schema() -> dict[str, Any]:
    """JSON Schema of the file."""

    def hook(kind: type) -> dict[str, Any]:
        if kind in {decoding.Seconds, decoding.Bytes}:
            example = "60s" if kind is decoding.Seconds else "80GiB"
            return {"anyOf": [{"type": "string"}, {"type": "number", "minimum": 0}], "examples": [example]}
        raise NotImplementedError  # msgspec's own sign that a hook does not know a type

    made = msgspec.json.schema(Config, schema_hook=hook)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Fairlead configuration", **made}
