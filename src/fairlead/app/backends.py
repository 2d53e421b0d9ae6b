"""Opens the backends a configuration names, each under a name of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping
from typing import Any

from fairlead.backends import registry
from fairlead.config.load import Loaded
from fairlead.config.spec import Config
from fairlead.engine.closing import close_backend
from fairlead.engine.source import Source, Tempo
from fairlead.engine.sources import inventory_of
from fairlead.model.errors import ConfigError, FairleadError
from fairlead.model.inventory import Inventory
from fairlead.model.ports import Backend, Clock, Record


def open_backends(
    loaded: Loaded, clock: Clock, *, keep: Container[str] = (), opened: dict[str, Backend] | None = None
) -> dict[str, Backend]:
    """All but those to keep, or a ConfigError that names each one that could not be opened.

    `opened` is filled as they are opened, so that they can be closed after an error.
    """
    opened = {} if opened is None else opened
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


def memorable(config: Config) -> dict[str, dict[str, Any]]:
    """What a kept inventory depends on, by name: the options, and the code that reads them.

    Without those whose code is not known, such as a program's own: a new version may name devices otherwise.
    """
    found = {name: (options, registry.release(str(options["kind"]))) for name, options in entries(config).items()}
    return {name: {"options": options, "release": release} for name, (options, release) in found.items() if release}


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
    from fairlead.engine.overlap import overlaps  # noqa: PLC0415 - a daemon with one backend needs it not

    opened: dict[str, Backend] = {}
    try:
        open_backends(loaded, clock, opened=opened)
        tempo = tempo_of(loaded.config)
        sources = [Source(name, each, tempo, clock, _ignore, lambda: None) for name, each in opened.items()]
        await asyncio.gather(*(source.scan() for source in sources))
    finally:
        await close_backends(opened, _ignore)
    problems = [f"{source.name}: {source.problem}" for source in sources if source.problem]
    return inventory_of(sources), (*problems, *overlaps(sources))


async def close_backends(opened: Mapping[str, Backend], record: Record) -> None:
    await asyncio.gather(*(close_backend(name, backend, record) for name, backend in opened.items()))


def _ignore(_kind: str, **_keys: object) -> None:
    pass
