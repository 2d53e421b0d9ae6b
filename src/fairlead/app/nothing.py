"""Why there is nothing to offer: the first true reason, for the log and the status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fairlead.app.source import Source
from fairlead.model.names import ResourceName
from fairlead.policy.rules import Assignment


def why_nothing(sources: Iterable[Source], assignment: Assignment, refused: Mapping[ResourceName, str]) -> str:
    """`refused`: resources whose list cannot be served, and why."""
    known = [*_problems(sources), *assignment.problems, *assignment.refused.values(), *refused.values()]
    if known:
        return "; ".join(dict.fromkeys(known))
    if not assignment.hits:
        return "no device was found"
    first = assignment.hits[0]
    if len(assignment.hits) == 1:
        return f"one device was found, and no rule takes it: {first.reason}"
    return (
        f"{len(assignment.hits)} devices were found, and no rule takes any. The first is {first.device}: {first.reason}"
    )


def _problems(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        for problem in (source.problem, *source.findings.problems):
            if problem:
                yield f"backend {source.name}: {problem}"
