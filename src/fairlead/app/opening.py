"""Opens the backends a configuration names, each under a name of its own."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from fairlead.app.source import Source, Tempo
from fairlead.app.stock import combine
from fairlead.backends import registry
from fairlead.config.load import Loaded
from fairlead.config.spec import Config
from fairlead.model.errors import ConfigError, FairleadError
from fairlead.model.inventory import Inventory
from fairlead.model.ports import Backend, Clock, Closes


def open_backends(loaded: Loaded, clock: Clock, *, keep: Container[str] = ()) -> dict[str, Backend]:
    """All but those to keep, or a ConfigError that names each one that could not be opened."""
    opened: dict[str, Backend] = {}
    problems = []
    for number, (name, options) in enumerate(entries(loaded.config).items()):
        if name in keep:
            continue
        try:
            opened[name] = registry.open(str(options["kind"]), _own(options), clock)
        except FairleadError as error:
            problems.append(f"backends[{number}]: {error}")
    if problems:
        raise ConfigError(loaded.source, problems)
    return opened


def entries(config: Config) -> dict[str, dict[str, Any]]:
    """The entries by name: what an entry says, else its kind; a second one of a name gets a number."""
    named: dict[str, dict[str, Any]] = {}
    for options in config.backends:
        wanted = str(options.get("name") or options["kind"])
        name, number = wanted, 2
        while name in named:
            name, number = f"{wanted}-{number}", number + 1
        named[name] = options
    return named


def _own(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in {"kind", "name"}}


def tempo_of(config: Config) -> Tempo:
    return Tempo(
        scan_interval_s=config.scan.interval,
        scan_deadline_s=config.scan.deadline,
        probe_interval_s=config.health.probe_interval,
        rest_interval_s=config.health.rest_interval,
        probe_deadline_s=config.health.probe_deadline,
        tuning=config.health.tuning(),
    )


async def survey(loaded: Loaded, clock: Clock) -> tuple[Inventory, tuple[str, ...]]:
    """One look at the devices, for commands that only tell: the inventory, and what could not be scanned."""
    sources = [
        Source(name, backend, tempo_of(loaded.config), clock, _ignore, lambda: None)
        for name, backend in open_backends(loaded, clock).items()
    ]
    try:
        for source in sources:
            await source.scan()
    finally:
        for source in sources:
            if isinstance(source.backend, Closes):
                await source.backend.close()
    problems = tuple(f"{source.name}: {source.problem}" for source in sources if source.problem)
    return combine(source.findings for source in sources), problems


def _ignore(_kind: str, **_keys: object) -> None:
    pass
