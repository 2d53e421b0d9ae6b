"""The cards that the docs show: how plugins fared in the conformance suite, as data in docs/cards.

Owns how a card is played in parts, side by side, and compared with what is written down.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from fairlead.standin.conformance import SCENARIOS, Card, Outcome, Result, Scenario
from tests.unit.standin.conformance.plugins import pick

CARDS = Path(__file__).parents[2] / "docs" / "cards"
# About the whole run, so in each part of it.
WHOLE = ("C77", "C79")

Play = Callable[[list[Scenario]], Awaitable[Card]]


async def played(play: Play, parts: Iterable[str]) -> dict[str, Result]:
    """The results of all parts, by scenario. What is true of the whole run must be true of every part."""
    cards = await asyncio.gather(*(play(pick(f"{part} {' '.join(WHOLE)}")) for part in parts))
    results: dict[str, Result] = {}
    for result in (result for card in cards for result in card.results):
        known = results.get(result.scenario.id)
        if known is None or known.outcome is not Outcome.FAIL:
            results[result.scenario.id] = result
    assert sorted(results) == sorted(scenario.id for scenario in SCENARIOS)
    return {scenario.id: results[scenario.id] for scenario in SCENARIOS}


def card(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CARDS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def verdicts(name: str) -> dict[str, str]:
    """What is written down of each scenario: pass, fail or skip."""
    return {one["id"]: one["result"] for one in card(name)["scenarios"]}


def differences(name: str, results: dict[str, Result]) -> dict[str, str]:
    """Where the results are not those that are written down."""
    told = verdicts(name)
    return {
        i: f"{told.get(i)} is written down, now {result.outcome}: {result.reason}"
        for i, result in results.items()
        if told.get(i) != str(result.outcome)
    }


def write(name: str, results: dict[str, Result], about: dict[str, Any]) -> None:
    """Write a card down, with what is known about the plugin. What was said about failures stays."""
    path = CARDS / f"{name}.json"
    old = card(name) if path.exists() else {}
    scenarios = [{"id": i, "result": str(result.outcome), "reason": result.reason} for i, result in results.items()]
    text = json.dumps({**old, **about, "scenarios": scenarios}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
