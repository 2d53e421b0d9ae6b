"""A simulated backend that prepares its devices before each container start, and remembers that it did.

The kind `drill` of the campaign's configurations. Its mood is that of the hardware: it outlives the backend.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.backends import registry
from fairlead.backends.sim import open_backend as open_sim
from fairlead.backends.sim.backend import SimBackend
from fairlead.model.edits import Grant
from fairlead.model.errors import BackendError
from fairlead.model.ports import Clock


@dataclass(slots=True)
class Mood:
    fails: bool = False
    hangs: bool = False
    prepared: Counter[str] = field(default_factory=Counter)  # by device: how often


MOOD = Mood()


class Drill(SimBackend):
    async def prepare(self, grant: Grant) -> None:
        if MOOD.hangs:
            await asyncio.Event().wait()
        if MOOD.fails:
            raise BackendError("the drill does not turn")
        MOOD.prepared.update(device.id for device in grant.devices)


def open_backend(options: Mapping[str, Any], clock: Clock) -> SimBackend:
    plain = open_sim(options, clock)
    return Drill(plain._hardware, plain._timeline, clock, speed=plain._speed)


def install() -> None:
    """Makes the kind known, with a mood that is fresh."""
    registry._OWN["drill"] = __name__
    MOOD.fails = MOOD.hangs = False
    MOOD.prepared.clear()
