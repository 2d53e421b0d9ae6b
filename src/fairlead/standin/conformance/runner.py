"""Plays scenarios against one plugin, one after the other, and fills in the card.

Owns the order, the limits and what a failure means. What is right is said by the scenarios.
"""

import time
from collections.abc import Sequence

from fairlead.standin.conformance.card import Card, Outcome, Result
from fairlead.standin.conformance.observations import Hooks, Timeouts
from fairlead.standin.conformance.pluginprocess import Command
from fairlead.standin.conformance.rig import PluginNeverRegistered, Rig
from fairlead.standin.conformance.scenario import Failed, Scenario, Skipped
from fairlead.standin.errors import CallFailed, KubeletPanicked

SCENARIO_S = 120.0  # or more, with longer timeouts: a net under the limits inside
FIRST = "C01"  # whether it registers at all
NOTHING = "not played: there is nothing to play with"
GIVE_UP_AFTER = 2  # scenarios in a row that found no plugin to play with


class Progress:
    """Called when a scenario begins and when it has ended."""

    def begins(self, scenario: Scenario) -> None: ...

    def ended(self, result: Result) -> None: ...


async def run(
    command: Command,
    scenarios: Sequence[Scenario],
    *,
    timeouts: Timeouts | None = None,
    resource: str | None = None,
    hooks: Hooks | None = None,
    progress: Progress | None = None,
) -> Card:
    """Start the plugin, play the scenarios, end everything that was started."""
    progress = progress or Progress()
    began_s = time.monotonic()
    results: list[Result] = []
    async with Rig(command, timeouts or Timeouts(), resource, hooks) as rig:
        trouble = await _open(rig)
        lost = 0
        for scenario in scenarios:
            progress.begins(scenario)
            if trouble and not (scenario.early and (rig.registrations or scenario.id == FIRST)):
                result = Result(scenario, Outcome.SKIP, NOTHING)
            elif trouble:
                rig.note(scenario)
                result = await _judge(rig, scenario)
            elif lost >= GIVE_UP_AFTER:
                result = Result(scenario, Outcome.FAIL, "not played: the plugin registers no more")
            else:
                result, found = await _play(rig, scenario)
                lost = 0 if found else lost + 1
            results.append(result)
            progress.ended(result)
        devices = len(rig.ids)
        return Card(command.words, rig.resource, devices, tuple(results), time.monotonic() - began_s, trouble)


async def _open(rig: Rig) -> str:
    try:
        await rig.open()
    except PluginNeverRegistered as error:
        return str(error)
    return ""


async def _play(rig: Rig, scenario: Scenario) -> tuple[Result, bool]:
    """How it went, and whether there still is a plugin to play with."""
    try:
        await rig.begin(scenario)
    except (Failed, KubeletPanicked) as broken:
        return Result(scenario, Outcome.FAIL, f"not played: {broken}"), False
    result = await _judge(rig, scenario)
    if result.outcome is Outcome.FAIL:
        try:
            await rig.renew()
        except (Failed, KubeletPanicked):
            return result, False
    return result, True


async def _judge(rig: Rig, scenario: Scenario) -> Result:
    began_s = time.monotonic()
    exits = len(rig.exits)
    net_s = max(SCENARIO_S, 20 * rig.timeouts.wait_s)

    def result(outcome: Outcome, reason: str = "") -> Result:
        return Result(scenario, outcome, " ".join(reason.split()), time.monotonic() - began_s)

    try:
        remark = await rig.timer.within(net_s, scenario.play(rig))
    except Skipped as why:
        return result(Outcome.SKIP, str(why))
    except (Failed, CallFailed, KubeletPanicked, TimeoutError) as broken:
        return result(Outcome.FAIL, str(broken) or f"not over in {net_s:g} s")
    ended = rig.exits[exits:]
    if remark or not ended:
        return result(Outcome.PASS, remark or "")
    times = "once" if len(ended) == 1 else f"{len(ended)} times"
    crash = next((each.crash for each in ended if each.crashed), "")
    did = f"crashed {times}: {crash};" if crash else f"ended {times},"
    return result(Outcome.PASS, f"it {did} and was started again")
