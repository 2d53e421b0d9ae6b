"""Link schemes: how the devices of a group score pairwise. Pure arithmetic on numbers within the group.

The scores are the ones placement is known to work with: where two devices meet on the bus, plus 100 per NVLink.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fairlead.backends.sim.spec import LinkPlan
from fairlead.backends.strict import did_you_mean

LEVELS = {"board": 60, "switch": 50, "switches": 40, "host-bridge": 30, "node": 20}
SYSTEM_SCORE = 10  # nothing in common but the system
PER_LINK_SCORE = 100
SCHEMES = ("numa", "nvswitch", "pcie-tree")
_TREE = {"switch": 2, "host-bridge": 8}
_PAIR = re.compile(r"(\d+)-(\d+)")

Scores = dict[tuple[int, int], int]


def score_pairs(plan: LinkPlan, numa: Sequence[int | None]) -> Scores:
    """The score of each pair (smaller number first). ValueError says what is wrong with the plan."""
    count = len(numa)
    scores = _base(plan, numa)
    for text, score in plan.pairs.items():
        match = _PAIR.fullmatch(text)
        if not match:
            raise ValueError(f"pairs: {text!r} is not a pair; write two numbers of the group, such as 0-3")
        one, other = sorted((int(match[1]), int(match[2])))
        if other >= count or one == other:
            raise ValueError(f"pairs: {text!r} is not a pair of this group; its devices are 0 to {count - 1}")
        scores[one, other] = scores.get((one, other), 0) + score
    return scores


def _base(plan: LinkPlan, numa: Sequence[int | None]) -> Scores:
    pairs = [(one, other) for other in range(len(numa)) for one in range(other)]
    if plan.matrix and plan.scheme:
        raise ValueError("give a scheme or a matrix, not both")
    if plan.matrix:
        return _from_matrix(plan.matrix, len(numa))
    if not plan.scheme:
        return {}
    if plan.scheme == "numa":
        return {pair: _by_node(numa, pair) for pair in pairs}
    if plan.scheme == "nvswitch":
        # Every device reaches every other with all its links; the node still decides between equals.
        return {pair: plan.width * PER_LINK_SCORE + _by_node(numa, pair) for pair in pairs}
    if plan.scheme == "pcie-tree":
        return _from_tree(plan.blocks or _TREE, pairs)
    raise ValueError(f"unknown scheme {plan.scheme!r}{did_you_mean(plan.scheme, SCHEMES)}")


def _by_node(numa: Sequence[int | None], pair: tuple[int, int]) -> int:
    one, other = numa[pair[0]], numa[pair[1]]
    return LEVELS["node"] if one is not None and one == other else SYSTEM_SCORE


def _from_tree(blocks: dict[str, int], pairs: list[tuple[int, int]]) -> Scores:
    for level in blocks:
        if level not in LEVELS:
            raise ValueError(f"blocks: unknown level {level!r}{did_you_mean(level, LEVELS)}")
    nearest = sorted(((LEVELS[level], size) for level, size in blocks.items()), reverse=True)
    return {
        (one, other): next((score for score, size in nearest if one // size == other // size), SYSTEM_SCORE)
        for one, other in pairs
    }


def _from_matrix(matrix: tuple[tuple[int, ...], ...], count: int) -> Scores:
    if len(matrix) != count or any(len(row) != count for row in matrix):
        raise ValueError(f"matrix: it needs {count} rows of {count} scores, one for each device of the group")
    scores: Scores = {}
    for other in range(count):
        for one in range(other):
            if matrix[one][other] != matrix[other][one]:
                raise ValueError(f"matrix: {one} to {other} differs from {other} to {one}; a link has one score")
            scores[one, other] = matrix[one][other]
    return scores
