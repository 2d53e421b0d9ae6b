"""Why there is nothing to offer: the first true reason, for the log and the status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fairlead.engine.source import Source
from fairlead.model.names import ResourceName
from fairlead.policy.offering.rules import Offering


def why_nothing(sources: Iterable[Source], offering: Offering, refused: Mapping[ResourceName, str]) -> str:
    """`refused`: resources whose list cannot be served, and why."""
    known = [*_problems(sources), *offering.problems, *offering.refused.values(), *refused.values()]
    if known:
        return "; ".join(dict.fromkeys(known))
    if not offering.matches:
        return "no device was found"
    first, count = offering.matches[0], len(offering.matches)
    if count == 1:
        return f"one device was found, and no rule takes it: {first.reason}"
    return f"{count} devices were found, and no rule takes any. The first is {first.device}: {first.reason}"


def _problems(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        for problem in (source.problem, *source.findings.problems):
            if problem:
                yield f"backend {source.name}: {problem}"
