"""The conformance suite: numbered scenarios that any device plugin, in any language, can be put through.

Each scenario is a rule and the play that shows whether a plugin keeps it. The plugin is a process; the kubelet is the
stand-in. What people see of it is in `fairlead.cli.conformance`.
"""

from fairlead.standin.conformance.card import Card, Outcome, Result, describe
from fairlead.standin.conformance.evidence import VERSION
from fairlead.standin.conformance.mount import NeedsRoot
from fairlead.standin.conformance.observations import Hooks, Timeouts
from fairlead.standin.conformance.pluginprocess import CannotStart, Command
from fairlead.standin.conformance.runner import NOTHING, Progress, run
from fairlead.standin.conformance.scenario import Chapter, Level, Scenario
from fairlead.standin.conformance.scenarios import CHAPTERS

SCENARIOS: tuple[Scenario, ...] = tuple(scenario for chapter in CHAPTERS for scenario in chapter.scenarios)

__all__ = [
    "CHAPTERS",
    "NOTHING",
    "SCENARIOS",
    "VERSION",
    "CannotStart",
    "Card",
    "Chapter",
    "Command",
    "Hooks",
    "Level",
    "NeedsRoot",
    "Outcome",
    "Progress",
    "Result",
    "Scenario",
    "Timeouts",
    "describe",
    "run",
]
