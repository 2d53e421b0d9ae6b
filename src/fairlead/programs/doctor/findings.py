"""A check: what may be wrong on a node, why that matters, and the command that cures it. Pure: facts in, findings out.

Owns the words of the doctor and the run of all checks. Code, title, severity and cure are data, so that the reference
is made of them; the reason is the docstring of the check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct, field

from fairlead.programs.doctor.facts import Facts, Missing

T = TypeVar("T")
GUIDE = "docs/reference/doctor.md"
EACH_MAX = 8  # findings of one check; the rest is counted
SEEN_MAX = 600  # characters of what was seen: names and texts of others are quoted in it
DAEMON, HOST, RUNTIME, API = "the daemon's own mounts", "the host's files", "the runtime", "the API server"


class Severity(StrEnum):
    """What it means to leave a finding as it is."""

    ERROR = "error"  # devices or pods fail now, or with the next pod
    WARNING = "warning"  # they will, in a case that is to be expected
    NOTE = "note"  # nothing fails; it explains what is seen


class Seen(Struct, frozen=True):
    """What a check saw, with the value. `values` fill the command; `cure`, `severity`: instead of the check's own."""

    text: str
    values: dict[str, str] = field(default_factory=dict)
    cure: str = ""
    severity: Severity | None = None


Look = Callable[[Facts], Iterable[Seen]]


class Check(Struct, frozen=True):
    code: str
    title: str
    severity: Severity
    needs: tuple[str, ...]  # some of DAEMON, HOST, RUNTIME, API
    cure: str  # a command; {name} stands for a value that was seen
    look: Look

    @property
    def why(self) -> str:
        return " ".join((self.look.__doc__ or "").split())

    @property
    def link(self) -> str:
        return f"{GUIDE}#{self.code.lower()}"


class Finding(Struct, frozen=True, kw_only=True):
    code: str
    severity: Severity
    title: str
    seen: str
    why: str
    cure: str
    link: str


class NotLookedAt(Struct, frozen=True):
    """A check that lacked what it needs. It says nothing of the node."""

    code: str
    title: str
    lacks: str


class Report(Struct, frozen=True, kw_only=True):
    findings: tuple[Finding, ...]
    not_looked_at: tuple[NotLookedAt, ...]
    looked_at: int  # checks that had what they need

    @property
    def counted(self) -> int:
        """Findings that make the command end with 1."""
        return sum(each.severity is not Severity.NOTE for each in self.findings)


class LacksError(Exception):
    """The check lacks a fact. The text says which, and how to give it."""


class Chapter(Struct):
    """Checks that belong together, in the order in which they are shown."""

    title: str
    checks: list[Check] = field(default_factory=list)

    def error(self, code: str, title: str, cure: str, *needs: str) -> Callable[[Look], Look]:
        return self._add(Severity.ERROR, code, title, cure, needs)

    def warning(self, code: str, title: str, cure: str, *needs: str) -> Callable[[Look], Look]:
        return self._add(Severity.WARNING, code, title, cure, needs)

    def note(self, code: str, title: str, cure: str, *needs: str) -> Callable[[Look], Look]:
        return self._add(Severity.NOTE, code, title, cure, needs)

    def _add(
        self, severity: Severity, code: str, title: str, cure: str, needs: Sequence[str]
    ) -> Callable[[Look], Look]:
        def add(look: Look) -> Look:
            self.checks.append(Check(code, title, severity, tuple(needs) or (DAEMON,), cure, look))
            return look

        return add


def need(fact: T | Missing) -> T:
    """The fact, or the end of the check."""
    if isinstance(fact, Missing):
        raise LacksError(fact.why)
    return fact


def known(fact: T | Missing, otherwise: T) -> T:
    """The fact, or what stands for it where the check can do without."""
    return otherwise if isinstance(fact, Missing) else fact


def examine(facts: Facts, checks: Iterable[Check]) -> Report:
    findings: list[Finding] = []
    lacking: list[NotLookedAt] = []
    count = 0
    for check in checks:
        count += 1
        try:
            seen = list(check.look(facts))
        except LacksError as error:
            lacking.append(NotLookedAt(check.code, check.title, str(error)))
            continue
        findings += [_finding(check, one) for one in _few(seen)]
    order = list(Severity)
    findings.sort(key=lambda one: (order.index(one.severity), one.code))
    lacking.sort(key=lambda one: one.code)
    return Report(findings=tuple(findings), not_looked_at=tuple(lacking), looked_at=count - len(lacking))


def _few(seen: list[Seen]) -> list[Seen]:
    if len(seen) <= EACH_MAX:
        return seen
    last = seen[EACH_MAX - 1]
    more = len(seen) - EACH_MAX
    return [
        *seen[: EACH_MAX - 1],
        Seen(f"{last.text}; and {more} more like this", last.values, last.cure, last.severity),
    ]


def _finding(check: Check, seen: Seen) -> Finding:
    cure = seen.cure or check.cure
    for name, value in seen.values.items():
        cure = cure.replace(f"{{{name}}}", value)
    return Finding(
        code=check.code,
        severity=seen.severity or check.severity,
        title=check.title,
        seen=seen.text if len(seen.text) <= SEEN_MAX else f"{seen.text[:SEEN_MAX]}…",
        why=check.why,
        cure=cure,
        link=check.link,
    )
