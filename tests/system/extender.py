"""The extender as a process: its command, and where it listens."""

from __future__ import annotations

import re

from tests.system.process import Program

WORDS = ("-m", "fairlead", "scheduler")


async def ports_of(running: Program) -> list[int]:
    line = await running.says("listening")
    found = re.search(r"addresses=(\S+)", line)
    assert found is not None, line
    return [int(address.rpartition(":")[2]) for address in found[1].split(",")]


async def port_of(running: Program) -> int:
    return (await ports_of(running))[0]
