"""Within which bounds the doctor reads: how much, how many, how long. A part that is late costs its own facts only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fairlead.kit.owner import Owner
from fairlead.model.errors import FairleadError
from fairlead.model.ports import Clock
from fairlead.programs.doctor.facts import Missing

T = TypeVar("T")
PART_S = 5.0  # for one part of the host's files
DRIVER_S = 20.0  # NVML wakes GPUs that sleep
API_S = 10.0
PCI_MAX = 4_096
SPECS_MAX = 64
SOCKETS_MAX = 64
LOG_MAX_BYTES = 4 * 2**20
XIDS_MAX = 64  # different ones


async def in_time(name: str, clock: Clock, read: Callable[[], T], deadline_s: float = PART_S) -> T | Missing:
    """What a blocking function reads, on a thread of its own. Missing when it is late, or cannot."""
    owner = Owner(name, clock)
    try:
        return await owner.call(read, deadline_s=deadline_s, what="reading")
    except FairleadError as error:
        return Missing(str(error))
    except OSError as error:
        return Missing(f"{error.filename or name}: {error.strerror or error}")
    except (ValueError, RecursionError, OverflowError) as error:
        return Missing(f"{name}: not understood: {error}")
    finally:
        owner.close()


async def answer(work: Awaitable[T], deadline_s: float) -> T | Missing:
    """What a server answers. Missing, with its words, when it refuses or is late."""
    try:
        async with asyncio.timeout(deadline_s):
            return await work
    except TimeoutError:
        return Missing(f"no answer within {deadline_s:g} s")
    except FairleadError as error:
        return Missing(str(error))
