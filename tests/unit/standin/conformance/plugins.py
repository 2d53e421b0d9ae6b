"""Runs the scenarios against the plugin beside this file, broken as told, without much timeouts."""

from __future__ import annotations

import sys
from pathlib import Path

from fairlead.standin.conformance import SCENARIOS, Card, Command, Hooks, Timeouts, run
from fairlead.standin.conformance.scenario import Scenario

ROOT = Path(__file__).parents[4]
BROKEN = (sys.executable, "-m", "tests.unit.standin.conformance.broken")
# Long enough for a good plugin, short enough to wait for a bad one. It does not run out while there is no free core.
TIMEOUTS = Timeouts(
    wait_s=6.0,
    call_s=3.0,
    end_s=2.0,
    quiet_s=0.5,
    refuse_s=1.0,
    slow_s=0.5,
    silence_s=12.0,
    watch_s=4.0,
    late=0.1,
)
# The plugin calls a device unhealthy while this file is there.
HOOKS = Hooks("touch {dir}/.sick", "rm {dir}/.sick")
EVERYTHING = "C01-C92"


def pick(ids: str) -> list[Scenario]:
    """`C01-C08 C77`: the scenarios, in their order."""
    wanted: set[str] = set()
    for word in ids.split():
        first, _, last = word.partition("-")
        wanted |= {scenario.id for scenario in SCENARIOS if first <= scenario.id <= (last or first)}
    return [scenario for scenario in SCENARIOS if scenario.id in wanted]


async def judge(fault: str, ids: str, timeouts: Timeouts = TIMEOUTS) -> Card:
    command = Command(BROKEN, variables={"FAULT": fault, "PYTHONPATH": str(ROOT)})
    return await run(command, pick(ids), timeouts=timeouts, hooks=HOOKS)
