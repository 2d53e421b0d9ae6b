"""Fairlead leads devices into pods. Write what devices exist; the engine registers, watches, shares and hands them out.

import fairlead

@fairlead.plugin("example.com/led")
def leds():
    return [fairlead.Device("led0", nodes=(fairlead.DeviceNode("/dev/led0"),))]

fairlead.run(leds)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead._version import __version__

if TYPE_CHECKING:
    from fairlead.kit.owner import Owner
    from fairlead.library import Plugin, plugin, run
    from fairlead.model.device import Device, DeviceNode
    from fairlead.model.edits import Edits, Grant, Mount
    from fairlead.model.errors import FairleadError, NotYet
    from fairlead.model.health import Cause, CauseKind
    from fairlead.model.inventory import Findings, Links
    from fairlead.model.ports import Backend, Clock, Sink
    from fairlead.model.resource import Strategy

__all__ = [
    "Backend",
    "Cause",
    "CauseKind",
    "Clock",
    "Device",
    "DeviceNode",
    "Edits",
    "FairleadError",
    "Findings",
    "Grant",
    "Links",
    "Mount",
    "NotYet",
    "Owner",
    "Plugin",
    "Sink",
    "Strategy",
    "__version__",
    "plugin",
    "run",
]

# Loaded when used: the daemon imports this package too, and needs none of it.
_HOMES = {
    "Backend": "fairlead.model.ports",
    "Cause": "fairlead.model.health",
    "CauseKind": "fairlead.model.health",
    "Clock": "fairlead.model.ports",
    "Device": "fairlead.model.device",
    "DeviceNode": "fairlead.model.device",
    "Edits": "fairlead.model.edits",
    "FairleadError": "fairlead.model.errors",
    "Findings": "fairlead.model.inventory",
    "Grant": "fairlead.model.edits",
    "Links": "fairlead.model.inventory",
    "Mount": "fairlead.model.edits",
    "NotYet": "fairlead.model.errors",
    "Owner": "fairlead.kit.owner",
    "Plugin": "fairlead.library",
    "Sink": "fairlead.model.ports",
    "Strategy": "fairlead.model.resource",
    "plugin": "fairlead.library",
    "run": "fairlead.library",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fairlead' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only a user of the library pays for it

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
