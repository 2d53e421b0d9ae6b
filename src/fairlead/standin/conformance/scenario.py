"""A scenario: a rule for device plugins, and the play that shows whether one keeps it.

Owns the words of the suite. Knows neither processes nor sockets; a play is handed what it needs.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from fairlead.standin.conformance.evidence import EVIDENCE, Evidence

if TYPE_CHECKING:
    from fairlead.standin.conformance.rig import Rig

# A play returns a remark, or nothing.
Play = Callable[["Rig"], Awaitable[str | None]]
GUIDE = "docs/reference/conformance.md"


class Level(StrEnum):
    """What it means to break a rule."""

    REQUIRED = "required"  # a kubelet does this, and pods fail, devices are lost, or the kubelet is harmed
    ADVISED = "advised"  # no pod is harmed, or no kubelet asks it


class Failed(Exception):
    """The plugin breaks the rule. The text says how, in one line."""


class Skipped(Exception):
    """The scenario does not apply to this plugin. The text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Scenario:
    id: str
    name: str
    level: Level
    rule: str
    play: Play
    early: bool = False  # can be judged even if the plugin never got as far as a list
    foreign: bool = False  # asks or does what no kubelet does: an end of the plugin that follows is the suite's doing

    @property
    def link(self) -> str:
        return f"{GUIDE}#{self.id.lower()}"

    @property
    def why(self) -> str:
        """The reason for the rule: what the play's docstring says."""
        return " ".join((self.play.__doc__ or "").split())

    @property
    def evidence(self) -> Evidence | None:
        """What a kubelet does, and where that was seen. Every required scenario has it."""
        return EVIDENCE.get(self.id)


@dataclass(slots=True)
class Chapter:
    """Scenarios that belong together, in the order in which they are played."""

    title: str
    scenarios: list[Scenario] = field(default_factory=list)

    def required(self, number: str, name: str, rule: str, **how: bool) -> Callable[[Play], Play]:
        """Adds a scenario. `how`: whether it is `early` or `foreign`."""
        return self._add(Level.REQUIRED, number, name, rule, **how)

    def advised(self, number: str, name: str, rule: str, **how: bool) -> Callable[[Play], Play]:
        return self._add(Level.ADVISED, number, name, rule, **how)

    def foreign(self, number: str, name: str, rule: str) -> Callable[[Play], Play]:
        """Adds an advised scenario that asks or does what no kubelet does."""
        return self._add(Level.ADVISED, number, name, rule, foreign=True)

    def _add(self, level: Level, number: str, name: str, rule: str, **how: bool) -> Callable[[Play], Play]:
        def add(play: Play) -> Play:
            self.scenarios.append(Scenario(number, name, level, rule, play, **how))
            return play

        return add


def some(items: Sequence[str], most: int = 3) -> str:
    """The first few, and how many more there are."""
    more = len(items) - most
    return ", ".join(repr(item) for item in items[:most]) + (f" and {more} more" if more > 0 else "")
