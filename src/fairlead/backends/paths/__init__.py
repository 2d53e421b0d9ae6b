"""A backend of files: any node below /dev, or a group of them, is a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.backends.paths.backend import PathsBackend
from fairlead.backends.paths.host import HostRoot
from fairlead.backends.paths.scan import Scanner
from fairlead.backends.paths.spec import Options, find_faults
from fairlead.backends.strict import convert
from fairlead.model.errors import ConfigError
from fairlead.model.ports import Clock

__all__ = ["PathsBackend", "open_backend"]


def open_backend(options: Mapping[str, Any], clock: Clock) -> PathsBackend:
    """Opens the paths of the options. ConfigError names every key that does not fit."""
    chosen = convert(dict(options), Options, "paths")
    faults = list(find_faults(chosen))
    if faults:
        raise ConfigError("paths", faults)
    return PathsBackend(Scanner(chosen.devices, HostRoot(chosen.host_root)), clock, poll_s=chosen.poll)
