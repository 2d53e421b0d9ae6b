"""A good partition, found fast, for the exact search to start from. Not itself exact.

Local search: two devices of different groups trade places while that adds links inside. O(passes x n^2).
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.policy.placement.groups import Matrix

_PASSES = 12


def links_of_good_partition(weights: Matrix, must: Sequence[int], size: int) -> int:
    """The links inside the groups of some partition into groups of this size; the first one holds `must`."""
    others = [i for i in range(len(weights)) if i not in set(must)]
    groups = -(-len(weights) // size)
    dealt = [others[k::groups] for k in range(groups)]
    return max(
        _improve(weights, set(must), size, [*must, *order]) for order in (others, [i for hand in dealt for i in hand])
    )


def _improve(weights: Matrix, must: set[int], size: int, order: Sequence[int]) -> int:
    """Reassigns pairs of devices to each other's group while that adds links inside. Returns the links."""
    group_of = [0] * len(order)
    for place, i in enumerate(order):
        group_of[i] = place // size
    groups = range(group_of[order[-1]] + 1)
    pull = [[0] * len(groups) for _ in order]  # per device, its links into each group
    for i, row in enumerate(weights):
        for j, weight in enumerate(row):
            pull[i][group_of[j]] += weight
    movable = [i for i in range(len(order)) if i not in must]
    for _ in range(_PASSES):
        if not any(_reassign_best(weights, pull, group_of, movable, i) for i in movable):
            break
    return sum(pull[i][group_of[i]] for i in range(len(order))) // 2


def _reassign_best(
    weights: Matrix, pull: list[list[int]], group_of: list[int], movable: Sequence[int], one: int
) -> bool:
    here, mine, row = group_of[one], pull[one], weights[one]
    best, other = 0, -1
    for j in movable:
        there = group_of[j]
        if there != here:
            gain = mine[there] - mine[here] + pull[j][here] - pull[j][there] - 2 * row[j]
            if gain > best:
                best, other = gain, j
    if other < 0:
        return False
    there = group_of[other]
    group_of[one], group_of[other] = there, here
    for i, into in enumerate(pull):
        change = weights[i][other] - row[i]
        into[here] += change
        into[there] -= change
    return True
