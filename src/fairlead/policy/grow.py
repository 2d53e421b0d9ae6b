"""Growth: a good group among more devices than can be searched. Greedy from several seeds, then pairwise exchange.

Links inside first, then fewest links cut, then lowest positions. The number of steps is bounded, so the time is.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, sub

from fairlead.policy.groups import Matrix

_SEEDS = 4
_WORK = 40_000  # elements touched; about 2 ms


def grow(weights: Matrix, must: Sequence[int], size: int) -> tuple[int, ...]:
    """A group of this size that holds `must`, as ascending positions."""
    degrees = [sum(row) for row in weights]
    scale = 2 * sum(degrees) + 1  # a link inside outweighs every link cut
    rows = [[weight * scale for weight in row] for row in weights]
    worth = [-degree for degree in degrees]
    work = _WORK
    best: tuple[int, list[int]] | None = None
    for seed in _seeds(rows, worth, must, size):
        chosen = _add_greedily(rows, worth, seed, size)
        work -= size * len(rows)
        chosen, work = _exchange(rows, worth, set(seed if len(seed) == len(must) else must), chosen, work)
        score = _score(rows, worth, chosen)
        if best is None or (-score, chosen) < (-best[0], best[1]):
            best = (score, chosen)
        if work <= 0:
            break
    assert best is not None, "there is at least one seed"
    return tuple(best[1])


def _seeds(rows: Matrix, worth: Sequence[int], must: Sequence[int], size: int) -> list[list[int]]:
    if must:
        return [list(must)]
    if size == 1:
        return [[max(range(len(rows)), key=lambda i: (worth[i], -i))]]
    reach = [sum(sorted(row, reverse=True)[: size - 1]) for row in rows]  # the most that a device could bring
    order = sorted(range(len(rows)), key=lambda i: (-reach[i], -worth[i], i))
    return [[i] for i in dict.fromkeys([*order[: _SEEDS - 1], 0])]


def _add_greedily(rows: Matrix, worth: Sequence[int], seed: Sequence[int], size: int) -> list[int]:
    chosen = list(seed)
    pull = list(worth)
    never = -(1 << 80) - sum(map(sum, rows))
    for i in chosen:
        pull = list(map(add, pull, rows[i]))
        pull[i] = never
    while len(chosen) < size:
        i = pull.index(max(pull))  # the first of equals: the lowest position
        chosen.append(i)
        pull = list(map(add, pull, rows[i]))
        pull[i] = never
    return sorted(chosen)


def _exchange(
    rows: Matrix, worth: Sequence[int], must: set[int], chosen: list[int], work: int
) -> tuple[list[int], int]:
    """Swaps one inside for one outside while that helps."""
    inside, outside = list(chosen), sorted(set(range(len(rows))) - set(chosen))
    pull = list(worth)
    for i in inside:
        pull = list(map(add, pull, rows[i]))
    improved = bool(outside)
    while improved and work > 0:
        improved = False
        for place, i in enumerate(inside):
            if i in must:
                continue
            row = rows[i]
            offers = list(map(sub, [pull[j] for j in outside], [row[j] for j in outside]))
            work -= 2 * len(outside)
            top = max(offers)
            if top > pull[i]:
                other = offers.index(top)
                j = outside[other]
                inside[place], outside[other] = j, i
                pull = list(map(add, map(sub, pull, row), rows[j]))
                work -= len(rows)
                improved = True
            if work <= 0:
                break
    return sorted(inside), work


def _score(rows: Matrix, worth: Sequence[int], chosen: Sequence[int]) -> int:
    return sum(worth[i] for i in chosen) + sum(rows[i][j] for i in chosen for j in chosen if i < j)
