"""A backend of AMD GPUs: whole ones and partitions, found and watched through sysfs alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.backends.amd.backend import AmdBackend
from fairlead.backends.amd.spec import Options, find_faults
from fairlead.kit.decoding import convert
from fairlead.model.errors import ConfigError
from fairlead.model.ports import Clock

__all__ = ["AmdBackend", "open_backend"]


def open_backend(options: Mapping[str, Any], clock: Clock) -> AmdBackend:
    """ConfigError names every key that does not fit. That there is no driver is not known here: scans say so."""
    chosen = convert(dict(options), Options, "amd")
    if problems := list(find_faults(chosen)):
        raise ConfigError("amd", problems)
    return AmdBackend(chosen, clock)
