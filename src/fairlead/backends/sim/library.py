"""The library of fleets: ready-made ones that come with the package, and files of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from fairlead.backends.sim import fleets as fleet_files
from fairlead.backends.sim.spec import Fleet
from fairlead.kit import documents
from fairlead.kit.decoding import convert, did_you_mean
from fairlead.model.errors import ConfigError

_SUFFIX = ".yaml"


class FleetInfo(Struct, frozen=True):
    name: str
    description: str
    devices: int


def fleets() -> tuple[FleetInfo, ...]:
    """The ready-made fleets, by name."""
    infos = []
    for name in _names():
        fleet, _ = load_fleet(name)
        parts = (group.count * (sum(part.count for part in group.partitions) or 1) for group in fleet.devices)
        infos.append(FleetInfo(name, fleet.description, sum(parts)))
    return tuple(infos)


def load_fleet(where: str) -> tuple[Fleet, str]:
    """The fleet of a ready-made name or of a path, and what to call it in errors."""
    if "/" in where or where.endswith((_SUFFIX, ".yml")):
        return _decode(documents.read(where), Path(where).stem, where), where
    source = f"fleet {where}"
    try:
        # The loader's own reader: importlib.resources costs 20 ms to import, at every start.
        text = fleet_files.__loader__.get_data(str(Path(fleet_files.__path__[0]) / (where + _SUFFIX)))  # type: ignore[union-attr]  # a package on disk or in a zip has a loader that reads
    except (OSError, ValueError):  # no such file, or no file name at all
        hint = did_you_mean(where, _names())
        raise ConfigError("sim", [f"fleet: no fleet {where!r}{hint}; or give a path to a YAML file"]) from None
    return _decode(documents.parse(text, source), where, source), source


def _decode(raw: Any, name: str, source: str) -> Fleet:
    fleet = convert(raw, Fleet, source)
    return fleet if fleet.name else msgspec.structs.replace(fleet, name=name)


def _names() -> list[str]:
    from importlib import resources  # noqa: PLC0415 - slow to import; only a listing and an error need it

    files = (entry.name for entry in resources.files(fleet_files).iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))
