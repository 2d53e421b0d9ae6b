"""A good group among more devices than can be searched: greedy from several seeds, then local search.

The local search replaces one chosen device by one that is not, while that adds links. Links inside come first, then
fewest links cut, then lowest positions. The number of steps is bounded, so the time is O(n) per step in n devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, itemgetter, sub

from fairlead.policy.placement.groups import Matrix

# Bounds on the work, chosen so that 128 devices take a few milliseconds.
_ADDITIONS = 96  # devices added one by one, over all seeds
_REASSIGNMENTS = 64  # devices for which a better one is looked for


def choose_greedily(weights: Matrix, must: Sequence[int], size: int) -> tuple[int, ...]:
    """A group of this size that holds `must`, as ascending positions.

    Devices are renumbered by how many links they have: then the first of equals is the one that cuts fewest.
    """
    degrees = list(map(sum, weights))
    order = sorted(range(len(weights)), key=degrees.__getitem__)
    number_of = {i: number for number, i in enumerate(order)}
    arrange = itemgetter(*order)
    rows = list(map(arrange, arrange(weights)))
    fixed = [number_of[i] for i in must]
    others = [number_of[i] for i in range(len(weights)) if i not in set(must)]
    starts = [[*fixed, *others][:size]]  # the lowest positions: the answer is never worse than these
    if 2 * size > len(rows):
        starts.append(_shrink(rows, fixed, size))
    else:
        starts += [_extend(rows, seed, size) for seed in _seeds(rows, fixed)[: max(1, _ADDITIONS // size)]]
    best = max(starts, key=lambda chosen: (_links(rows, chosen), -sum(degrees[order[number]] for number in chosen)))
    return tuple(sorted(order[number] for number in _reassign(rows, set(fixed), best)))


def _seeds(rows: Matrix, must: list[int]) -> list[list[int]]:
    """An end of the strongest link; the device with the fewest links; the one with the most."""
    if must:
        return [must]
    strongest = list(map(max, rows))
    return [[i] for i in dict.fromkeys((strongest.index(max(strongest)), 0, len(rows) - 1))]


def _extend(rows: Matrix, seed: Sequence[int], size: int) -> list[int]:
    """Adds the device with the most links into the group, again and again."""
    chosen = list(seed)
    never = -2 * sum(map(sum, rows)) - 1  # no link can lift it up again
    pull = [0] * len(rows)
    for i in chosen:
        pull = list(map(add, pull, rows[i]))
    for i in chosen:
        pull[i] += never
    while len(chosen) < size:
        i = pull.index(max(pull))
        chosen.append(i)
        pull = list(map(add, pull, rows[i]))
        pull[i] += never
    return chosen


def _links(rows: Matrix, chosen: Sequence[int]) -> int:
    """Links inside, each counted twice."""
    if len(chosen) == 1:
        return 0
    pick = itemgetter(*chosen)
    return sum(sum(pick(rows[i])) for i in chosen)


def _shrink(rows: Matrix, must: Sequence[int], size: int) -> list[int]:
    """Drops the device with the fewest links into the group, again and again: the shorter way to a large group."""
    pull = list(map(sum, reversed(rows)))  # backwards: the first of equals is then the one with the most links
    last = len(rows) - 1
    always = 2 * sum(pull) + 1  # no lost link can bring it down again
    dropped = set()
    for i in must:
        pull[last - i] = always
    for _ in range(len(rows) - size):
        i = last - pull.index(min(pull))
        dropped.add(i)
        pull = list(map(sub, pull, reversed(rows[i])))
        pull[last - i] = always
    return [i for i in range(len(rows)) if i not in dropped]


def _reassign(rows: Matrix, must: set[int], chosen: list[int]) -> list[int]:
    """Replaces a device inside by one outside while that helps and the budget lasts."""
    inside, outside = list(chosen), sorted(set(range(len(rows))) - set(chosen))
    pull = [0] * len(rows)
    for i in inside:
        pull = list(map(add, pull, rows[i]))
    movable = [position for position, i in enumerate(inside) if i not in must]
    unmoved = 0  # looked at since the last reassignment
    for step in range(_REASSIGNMENTS):
        if unmoved == len(movable):
            break
        unmoved += 1
        position = movable[step % len(movable)]
        i = inside[position]
        row = rows[i]
        offers = [pull[j] - row[j] for j in outside]
        top = max(offers)
        other = offers.index(top)
        j = outside[other]
        if (top, -j) > (pull[i], -i):
            inside[position] = j
            outside[other] = i
            outside.sort()
            pull = list(map(add, map(sub, pull, row), rows[j]))
            unmoved = 0
    return inside
