"""A backend of files: any node below /dev, or several that belong together, are a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.backends.paths.backend import PathsBackend
from fairlead.backends.paths.presets import options_of
from fairlead.backends.paths.scan import Scanner
from fairlead.kit.hostroot import HostRoot
from fairlead.model.ports import Clock

__all__ = ["PathsBackend", "open_backend"]


def open_backend(options: Mapping[str, Any], clock: Clock) -> PathsBackend:
    """Opens the paths of the options. ConfigError names every key that does not fit."""
    chosen = options_of(options)
    return PathsBackend(Scanner(chosen.devices, HostRoot(chosen.host_root)), clock, poll_s=chosen.poll)
