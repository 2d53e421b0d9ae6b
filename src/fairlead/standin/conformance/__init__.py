"""The conformance suite: numbered scenarios that any device plugin, in any language, can be put through.

Each scenario is a rule and the play that shows whether a plugin keeps it. The plugin is a process; the kubelet is the
stand-in. What people see of it is in `fairlead.cli.conformance`.
"""

from fairlead.standin.conformance import (
    allocating,
    ending,
    listing,
    mending,
    podding,
    preferring,
    registering,
    restarting,
    several,
    standing,
    watching,
    whole,
)
from fairlead.standin.conformance.card import Card, Mark, Result, describe, describe_all
from fairlead.standin.conformance.evidence import VERSION
from fairlead.standin.conformance.mount import NeedsRoot
from fairlead.standin.conformance.runner import NOTHING, Progress, run
from fairlead.standin.conformance.scenario import Chapter, Level, Scenario
from fairlead.standin.conformance.seen import Hooks, Patience
from fairlead.standin.conformance.subject import CannotStart, Command

CHAPTERS: tuple[Chapter, ...] = (
    registering.CHAPTER,
    listing.CHAPTER,
    watching.CHAPTER,
    allocating.CHAPTER,
    podding.CHAPTER,
    preferring.CHAPTER,
    restarting.CHAPTER,
    mending.CHAPTER,
    several.CHAPTER,
    ending.CHAPTER,
    standing.CHAPTER,
    whole.CHAPTER,
)
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
    "Mark",
    "NeedsRoot",
    "Patience",
    "Progress",
    "Result",
    "Scenario",
    "describe",
    "describe_all",
    "run",
]
