"""NUMA: which combinations of nodes can serve a request, which one the policy picks, how it splits the devices.

Pure. Follows the kubelet's topology manager at container scope, for device plugins' resources only:
CPU and memory give no hints here.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Policy = Literal["none", "best-effort", "restricted", "single-numa-node"]
POLICIES: tuple[Policy, ...] = ("none", "best-effort", "restricted", "single-numa-node")
MAX_NODES = 8


@dataclass(frozen=True, slots=True)
class Hint:
    """A set of NUMA nodes; None means that any will do."""

    nodes: frozenset[int] | None
    preferred: bool


def hints_for(
    devices: Mapping[str, Sequence[int]],
    available: Collection[str],
    reusable: Collection[str],
    request: int,
    nodes: Sequence[int],
) -> list[Hint]:
    """Every combination of nodes that can serve the request.

    Preferred are those as small as the smallest that could serve it if all devices of the resource were free.
    """
    bearing = sorted({node for numa in devices.values() for node in numa} & set(nodes))
    smallest = len(bearing)
    fitting: list[frozenset[int]] = []
    for mask in _combinations(bearing):
        if sum(1 for numa in devices.values() if mask.intersection(numa)) >= request:
            smallest = min(smallest, len(mask))
        placed = [i for i in reusable if devices.get(i)]
        if any(not mask.intersection(devices[i]) for i in placed):
            continue
        matching = len(placed) + sum(1 for i in available if mask.intersection(devices.get(i, ())))
        if matching >= request:
            fitting.append(mask)
    return [Hint(mask, preferred=len(mask) == smallest) for mask in fitting]


def decide(policy: Policy, hints: Sequence[list[Hint] | None], nodes: Sequence[int]) -> tuple[Hint, bool]:
    """The hint to place by and whether the container is admitted.

    `hints` has one element per resource: None for no preference, an empty list for impossible.
    """
    if policy == "none":
        return Hint(None, preferred=True), True
    groups = [_or_any(hint) for hint in hints]
    everything = frozenset(nodes)
    if policy == "single-numa-node":
        single = [[h for h in group if h.preferred and (h.nodes is None or len(h.nodes) == 1)] for group in groups]
        best = _merge(single, everything)
        if best.nodes == everything:
            best = Hint(None, best.preferred)
        return best, best.preferred
    best = _merge(groups, everything)
    return best, policy == "best-effort" or best.preferred


def split(
    available: Collection[str], devices: Mapping[str, Sequence[int]], nodes: frozenset[int] | None
) -> tuple[set[str], set[str], set[str]]:
    """Aligned with the hint, not aligned, without topology. Without a hint everything is the latter."""
    if nodes is None or not any(devices.values()):
        return set(), set(), set(available)
    aligned = {i for i in available if nodes.intersection(devices.get(i, ()))}
    without = {i for i in available if not devices.get(i)}
    return aligned, set(available) - aligned - without, without


def _or_any(hints: list[Hint] | None) -> list[Hint]:
    if hints is None:
        return [Hint(None, preferred=True)]
    return hints or [Hint(None, preferred=False)]


def _merge(groups: Sequence[list[Hint]], everything: frozenset[int]) -> Hint:
    least = [min((len(h.nodes) for h in group if h.nodes is not None), default=0) for group in groups]
    # A merged hint that is not preferred is best when as wide as the neediest resource wants it.
    target = max(least, default=0)
    best: Hint | None = None
    for permutation in itertools.product(*groups):
        candidate = _combine(permutation, everything)
        if candidate.nodes and (best is None or _is_better(candidate, best, target)):
            best = candidate
    return best or Hint(everything, preferred=False)


def _combine(hints: Iterable[Hint], everything: frozenset[int]) -> Hint:
    group = tuple(hints)
    masks = {hint.nodes for hint in group if hint.nodes is not None}
    # Preferred only if every resource that has a wish prefers the same nodes.
    preferred = len(masks) <= 1 and all(hint.preferred for hint in group)
    return Hint(frozenset.intersection(everything, *masks), preferred)


def _is_better(candidate: Hint, best: Hint, target: int) -> bool:
    assert candidate.nodes is not None
    assert best.nodes is not None
    if candidate.preferred != best.preferred:
        return candidate.preferred
    ours, theirs = len(candidate.nodes), len(best.nodes)
    narrower = (ours, _value(candidate.nodes)) < (theirs, _value(best.nodes))
    if candidate.preferred or theirs > target:
        return narrower
    if theirs == target:
        return ours == target and narrower
    if ours >= target:
        return ours == target
    return ours > theirs or (ours == theirs and narrower)


def _value(nodes: frozenset[int]) -> int:
    return sum(1 << node for node in nodes)


def _combinations(nodes: Sequence[int]) -> Iterable[frozenset[int]]:
    for size in range(1, len(nodes) + 1):
        for chosen in itertools.combinations(nodes, size):
            yield frozenset(chosen)
