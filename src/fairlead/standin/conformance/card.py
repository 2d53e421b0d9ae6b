"""The report card: how each scenario ended, and what that comes to. Draws nothing, and reads nothing but the date."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from fairlead._version import __version__
from fairlead.standin.conformance.scenario import Level, Scenario

SUITE = 2  # changes when scenarios come, go, or judge otherwise


class Outcome(StrEnum):
    PASS = "pass"  # noqa: S105 - an outcome, no password
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Result:
    scenario: Scenario
    outcome: Outcome
    reason: str = ""  # why it failed or was skipped; a remark if it passed
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether the plugin does not conform because of it."""
        return self.outcome is Outcome.FAIL and self.scenario.level is Level.REQUIRED


@dataclass(frozen=True, slots=True)
class Card:
    command: tuple[str, ...]
    resource: str
    devices: int
    results: tuple[Result, ...]
    seconds: float
    trouble: str = ""  # why nothing could be played at all
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())

    @property
    def conforms(self) -> bool:
        return not self.trouble and not any(result.counts for result in self.results)

    @property
    def totals(self) -> dict[str, int]:
        found = Counter(
            "advice" if result.outcome is Outcome.FAIL and not result.counts else str(result.outcome)
            for result in self.results
        )
        return {kind: found[kind] for kind in ("pass", "fail", "advice", "skip")}

    def failed(self) -> tuple[str, ...]:
        """The ids of the scenarios that failed, required or not."""
        return tuple(result.scenario.id for result in self.results if result.outcome is Outcome.FAIL)

    def facts(self) -> dict[str, Any]:
        """The card as plain data."""
        return {
            "suite": SUITE,
            "fairlead": __version__,
            "date": self.date,
            "command": list(self.command),
            "resource": self.resource,
            "devices": self.devices,
            "conforms": self.conforms,
            "trouble": self.trouble,
            "seconds": round(self.seconds, 1),
            "totals": self.totals,
            "scenarios": [
                {**describe(result.scenario), "result": str(result.outcome), "reason": result.reason}
                for result in self.results
            ],
        }


def describe(scenario: Scenario) -> dict[str, str]:
    evidence = scenario.evidence
    return {
        "id": scenario.id,
        "name": scenario.name,
        "level": str(scenario.level),
        "rule": scenario.rule,
        "link": scenario.link,
        "kubelet": evidence.does if evidence else "",
        "seen": evidence.place if evidence else "",
    }
