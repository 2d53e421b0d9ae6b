"""Volcano's config file, version v1beta1: two keys, which its own plugin reads and drops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.backends import documents, files
from fairlead.backends.strict import did_you_mean
from fairlead.model.errors import ConfigError

VERSION = "v1beta1"
STRATEGY = "flags.GPUStrategy"
FACTOR = "flags.GPUMemoryFactor"
_KEYS = {"": ("version", "flags"), "flags.": ("GPUStrategy", "GPUMemoryFactor")}


def load(path: str, *, lenient: bool = False) -> dict[str, Any]:
    """What the file says, by the keys above; only what is given. ConfigError names everything that is wrong."""
    try:
        text = files.read_text(path)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(path, [f"cannot be read: {reason}. Correct --config-file or CONFIG_FILE"]) from None
    return parse(text, path, lenient=lenient)


def parse(text: str, source: str, *, lenient: bool = False) -> dict[str, Any]:
    raw = documents.parse(text, source)
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ConfigError(source, [f"expected keys such as version and flags, got {type(raw).__name__}"])
    problems: list[str] = []
    top = _fit(raw, "", problems, lenient=lenient)
    version = top.get("version")
    if version not in (None, "", VERSION):
        problems.append(f"unknown version: {version}. This reads {VERSION}")
    flags = top.get("flags")
    if flags is not None and not isinstance(flags, dict):
        problems.append(f"flags: expected GPUStrategy and GPUMemoryFactor, got {flags!r:.80}")
        flags = None
    found = {f"flags.{key}": value for key, value in _fit(flags or {}, "flags.", problems, lenient=lenient).items()}
    problems += _wrong(found)
    if problems:
        raise ConfigError(source, problems)
    return {key: value for key, value in found.items() if value is not None}


def _fit(raw: Mapping[Any, Any], at: str, problems: list[str], *, lenient: bool) -> dict[str, Any]:
    """The keys that are known; to the lenient in any case, as Go reads them."""
    known = _KEYS[at]
    found: dict[str, Any] = {}
    for key, value in raw.items():
        alike = next((name for name in known if lenient and str(key).lower() == name.lower()), None)
        if key in known or alike:
            found[alike or key] = value
        elif not lenient:
            problems.append(f"{at}{key!s:.80}: unknown key{did_you_mean(key, known)}")
    return found


def _wrong(found: Mapping[str, Any]) -> Iterator[str]:
    strategy, factor = found.get(STRATEGY), found.get(FACTOR)
    if strategy is not None and not isinstance(strategy, str):
        yield f"{STRATEGY}: expected text, got {strategy!r:.80}"
    if factor is not None and (not isinstance(factor, int) or isinstance(factor, bool)):
        yield f"{FACTOR}: expected a whole number, got {factor!r:.80}"
