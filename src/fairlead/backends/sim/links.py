"""Link schemes: how the devices of a group score pairwise. Pure arithmetic on numbers within the group.

The scores are the ones placement is known to work with: where two devices meet on the bus, plus 100 per NVLink.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fairlead.backends.sim.spec import LinkSpec
from fairlead.kit.decoding import did_you_mean

LEVELS = {"board": 60, "switch": 50, "switches": 40, "host-bridge": 30, "node": 20}
SYSTEM_SCORE = 10  # nothing in common but the system
PER_LINK_SCORE = 100
XGMI_SCORE, PCIE_SCORE, NEAR_SCORE = 50, 20, 10  # of AMD GPUs, as that backend has them
SCHEMES = ("numa", "nvswitch", "pcie-tree", "xgmi")
_TREE = {"switch": 2, "host-bridge": 8}
_PAIR = re.compile(r"(\d+)-(\d+)")

Scores = dict[tuple[int, int], int]


def score_pairs(spec: LinkSpec, numa: Sequence[int | None]) -> Scores:
    """The score of each pair (smaller number first). ValueError says what is wrong with the plan."""
    count = len(numa)
    scores = _base(spec, numa)
    for text, score in spec.pairs.items():
        match = _PAIR.fullmatch(text)
        if not match:
            raise ValueError(f"pairs: {text!r} is not a pair; write two numbers of the group, such as 0-3")
        one, other = sorted((int(match[1]), int(match[2])))
        if other >= count or one == other:
            raise ValueError(f"pairs: {text!r} is not a pair of this group; its devices are 0 to {count - 1}")
        scores[one, other] = scores.get((one, other), 0) + score
    return scores


def _base(spec: LinkSpec, numa: Sequence[int | None]) -> Scores:
    pairs = [(one, other) for other in range(len(numa)) for one in range(other)]
    if spec.matrix and spec.scheme:
        raise ValueError("give a scheme or a matrix, not both")
    if spec.matrix:
        return _from_matrix(spec.matrix, len(numa))
    if not spec.scheme:
        return {}
    if spec.scheme == "numa":
        return {pair: _by_node(numa, pair) for pair in pairs}
    if spec.scheme == "nvswitch":
        # Every device reaches every other with all its links; the node still decides between equals.
        return {pair: spec.width * PER_LINK_SCORE + _by_node(numa, pair) for pair in pairs}
    if spec.scheme == "xgmi":
        return _from_hives(spec.blocks.get("hive", len(numa)), numa, pairs)
    if spec.scheme == "pcie-tree":
        return _from_tree(spec.blocks or _TREE, pairs)
    raise ValueError(f"unknown scheme {spec.scheme!r}{did_you_mean(spec.scheme, SCHEMES)}")


def _by_node(numa: Sequence[int | None], pair: tuple[int, int]) -> int:
    one, other = numa[pair[0]], numa[pair[1]]
    return LEVELS["node"] if one is not None and one == other else SYSTEM_SCORE


def parts_score(scheme: str) -> int:
    """Of two partitions of one device."""
    return XGMI_SCORE + 2 * NEAR_SCORE if scheme == "xgmi" else LEVELS["board"]


def _from_hives(size: int, numa: Sequence[int | None], pairs: list[tuple[int, int]]) -> Scores:
    return {
        (one, other): (XGMI_SCORE if one // size == other // size else PCIE_SCORE)
        + (NEAR_SCORE if numa[one] == numa[other] else 0)
        for one, other in pairs
    }


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
