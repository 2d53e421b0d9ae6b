"""The pages of the reference about conformance: every scenario with its rule, and the cards of other plugins.

Used by `docs.generate`. What the cards say is data, in docs/cards.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairlead.standin.conformance import CHAPTERS, SCENARIOS, VERSION, Level, Scenario
from fairlead.standin.conformance.card import SUITE

CARDS = Path(__file__).with_name("cards")
LEVELS = {scenario.id: scenario.level for scenario in sorted(SCENARIOS, key=lambda one: one.id)}
NAMES = {scenario.id: scenario.name for scenario in SCENARIOS}


def rules() -> Iterator[str]:
    yield "# The scenarios of the conformance suite"
    yield (
        "What each scenario asks of a device plugin, and why. A *required* one is what a kubelet does: where it fails, "
        "pods fail, devices are lost, or the kubelet is harmed. An *advised* one harms no pod, or no kubelet asks it. "
        "`fairlead conformance --explain C41` shows the same. [Guide](../guide/conformance.md)"
    )
    for chapter in CHAPTERS:
        yield f"## {chapter.title}"
        for scenario in chapter.scenarios:
            yield from _rule(scenario)


def _rule(scenario: Scenario) -> Iterator[str]:
    yield f"### {scenario.id}"
    name = scenario.name[0].upper() + scenario.name[1:]
    yield f"**{name}** ({scenario.level}). {scenario.rule}"
    yield scenario.why
    if (evidence := scenario.evidence) is not None:
        yield f"Kubelet {VERSION}: {evidence.does} {evidence.place}."
    elif scenario.foreign and scenario.level is Level.ADVISED:
        yield "No kubelet does this."


def cards() -> Iterator[str]:
    """The cards in docs/cards, as tables."""
    known = [_Card(path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(CARDS.glob("*.json"))]
    yield "# Cards of device plugins"
    yield (
        "How device plugins of other projects fare in the [conformance suite](../guide/conformance.md), and what each "
        "failure means for a user. The hardware and the API servers were simulated: what a plugin does with a true "
        "card is not in here."
    )
    yield (
        "Cards of suite 2 were played with the suite as it is; `make conformance` plays them again. Cards of suite 1 "
        "are recordings of an older suite, which was too strict in some places and too lenient in others. Those "
        "plugins were not played again. The last column says what suite 2 does otherwise in that line, and what it is "
        "expected to find; *open* means that only another run can tell. Where the column is empty nothing has changed."
    )
    rows = [
        f"| [{card.peer}](#{card.name}) | {card.version} | {card.suite}, {card.date} | {card.summary} |"
        for card in known
    ]
    yield "\n".join(["| plugin | version | suite, date | required and not kept |", "|---|---|---|---|", *rows])
    for card in known:
        yield f"## {card.name}"
        yield f"{card.peer}, {card.version}{card.commit}. {card.setup}."
        yield "\n".join(card.rows())


class _Card:
    """One file of docs/cards."""

    def __init__(self, name: str, facts: dict[str, Any]) -> None:
        self.name = name
        self.peer, self.version, self.date = facts["peer"], facts["version"], facts["date"]
        self.suite, self.worth, self._now = facts["suite"], facts["worth"], facts.get("now", {})
        self.commit = f", commit {facts['commit'][:12]}" if "commit" in facts else ""
        self.setup = facts["setup"][0].upper() + facts["setup"][1:]
        self._results = {one["id"]: one for one in facts["scenarios"]}

    @property
    def summary(self) -> str:
        """The required scenarios that fail, or are expected to."""
        expected = [i for i in self._told() if LEVELS[i] is Level.REQUIRED and self._expected(i) == "fail"]
        links = ", ".join(_link(i) for i in expected) or "none"
        return links if self.suite == SUITE else f"expected: {links}"

    def rows(self) -> Iterator[str]:
        counts = Counter(one["result"] for one in self._results.values())
        yield f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} did not apply."
        yield ""
        old = self.suite != SUITE
        yield "| scenario | level | seen | what it means for a user |" + (f" in suite {SUITE} |" if old else "")
        yield "|---|---|---|---|" + ("---|" if old else "")
        for i in self._told():
            result = self._results.get(i, {"result": "not played", "reason": ""})
            seen = result["reason"] if result["result"] == "fail" else result["result"]
            now = self._now.get(i)
            expected = f" {now['expected']}. {now['why']}" if now else ""
            seen = seen.replace("|", "\\|")
            row = f"| {_link(i)} {NAMES[i]} | {LEVELS[i]} | {seen} | {self.worth.get(i, '')} |"
            yield row + (f"{expected} |" if old else "")

    def _told(self) -> list[str]:
        """The scenarios that failed, and those about which there is more to say."""
        failed = {i for i, one in self._results.items() if one["result"] == "fail"}
        return [i for i in LEVELS if i in failed | set(self.worth)]

    def _expected(self, i: str) -> str:
        now = self._now.get(i)
        return str(now["expected"]) if now else str(self._results.get(i, {}).get("result"))


def _link(i: str) -> str:
    return f"[{i}](conformance.md#{i.lower()})"
