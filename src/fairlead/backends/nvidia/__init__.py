"""A backend of NVIDIA GPUs: whole ones and MIG instances, found and watched through NVML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.backends.nvidia.backend import NvidiaBackend
from fairlead.backends.nvidia.faults import TABLE, unknown_codes
from fairlead.backends.nvidia.spec import Options, find_faults
from fairlead.kit.decoding import convert
from fairlead.model.errors import ConfigError
from fairlead.model.ports import Clock

__all__ = ["NvidiaBackend", "open_backend"]


def open_backend(options: Mapping[str, Any], clock: Clock) -> NvidiaBackend:
    """ConfigError names every key that does not fit. That there is no driver is not known here: scans say so."""
    chosen = convert(dict(options), Options, "nvidia")
    problems = list(find_faults(chosen))
    for code in unknown_codes(chosen.health.faults):
        from fairlead.kit.decoding import did_you_mean  # noqa: PLC0415 - only an error needs it

        problems.append(f"health.faults: unknown code {code!r}{did_you_mean(code, [*TABLE, 'xid-<number>'])}")
    if problems:
        raise ConfigError("nvidia", problems)
    return NvidiaBackend(chosen, clock)
