"""The conformance suite: numbered scenarios that any device plugin, in any language, can be put through.

Each scenario is a rule and the play that shows whether a plugin keeps it. The plugin is a process; the kubelet is the
stand-in. What people see of it is in `fairlead.cli.conformance`.
"""

from fairlead.standin.conformance import allocating, ending, listing, preferring, registering, restarting, standing
from fairlead.standin.conformance.card import Card, Mark, Result, describe_all
from fairlead.standin.conformance.rig import Patience
from fairlead.standin.conformance.runner import NOTHING, Progress, run
from fairlead.standin.conformance.scenario import Chapter, Level, Scenario
from fairlead.standin.conformance.subject import CannotStart, Command, NeedsRoot

CHAPTERS: tuple[Chapter, ...] = (
    registering.CHAPTER,
    listing.CHAPTER,
    allocating.CHAPTER,
    preferring.CHAPTER,
    restarting.CHAPTER,
    ending.CHAPTER,
    standing.CHAPTER,
)
SCENARIOS: tuple[Scenario, ...] = tuple(scenario for chapter in CHAPTERS for scenario in chapter.scenarios)

__all__ = [
    "CHAPTERS",
    "NOTHING",
    "SCENARIOS",
    "CannotStart",
    "Card",
    "Chapter",
    "Command",
    "Level",
    "Mark",
    "NeedsRoot",
    "Patience",
    "Progress",
    "Result",
    "Scenario",
    "describe_all",
    "run",
]
