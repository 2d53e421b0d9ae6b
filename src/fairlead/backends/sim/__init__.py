"""A backend of simulated devices: a fleet out of a YAML file, and a timeline of what goes wrong with it.

For demos, tests and trying out policies: the engine above it is the real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.backends.sim.backend import SimBackend
from fairlead.backends.sim.build import build
from fairlead.backends.sim.hardware import Hardware
from fairlead.backends.sim.library import FleetInfo, fleets, load_fleet
from fairlead.backends.sim.spec import AnyOrder, Fleet, Options
from fairlead.kit.decoding import convert
from fairlead.model.errors import ConfigError, UsageError
from fairlead.model.ports import Clock

__all__ = ["FleetInfo", "SimBackend", "fleets", "open_backend"]


def open_backend(options: Mapping[str, Any], clock: Clock) -> SimBackend:
    """Opens the fleet of the options. ConfigError names every key that does not fit."""
    chosen = convert(dict(options), Options, "sim")
    if isinstance(chosen.fleet, Fleet):
        fleet, source = chosen.fleet, "sim: fleet"
    else:
        fleet, source = load_fleet(chosen.fleet)
    name = fleet.name or "inline"
    timeline = fleet.timeline if chosen.timeline is None else chosen.timeline
    built = build(fleet.devices, name, source)
    _dry_run(Hardware(built, name), timeline, source if chosen.timeline is None else "sim")
    return SimBackend(Hardware(built, name), timeline, clock, speed=chosen.speed)


def _dry_run(hardware: Hardware, timeline: tuple[AnyOrder, ...], source: str) -> None:
    """Carries the timeline out on hardware that is thrown away: a wrong name shows at the start, not an hour later."""
    problems = []
    for position, order in sorted(enumerate(timeline), key=lambda numbered: numbered[1].at):
        try:
            hardware.carry_out(order)
        except UsageError as error:
            problems.append(f"timeline[{position}]: {error}")
    if problems:
        raise ConfigError(source, problems)
