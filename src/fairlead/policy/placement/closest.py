"""Closest placement: the devices that cost least together, with whole parents kept whole. AMD's order among equals.

Devices are grouped by parent (a device without one is its own). A request takes some groups whole and the first
devices of one more; of all such choices the one whose pairs cost least wins. Between equals: fewest groups, then the
earliest groups. Groups are ordered by how many devices they have left, fewest first: what is broken up already is
used up first.

Which pairs are near is the backend's to say, by its links: those of AMD GPUs are AMD's own weights.

Exact by branch and bound over sets of groups, never over their orders; of groups that are interchangeable only the
first is tried. A search that is not over after WORK_MAX answers the best that it found: far more than eight GPUs with
eight partitions, or sixteen GPUs, take. Knows nothing of slots, ids or links: devices are positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import add

from fairlead.policy.placement.groups import Matrix

WORK_MAX = 25_000  # devices looked at, over all steps: about a tenth of a second
_SEEDS = 4


def cost_rows(links: Matrix) -> list[list[int]]:
    """What each pair costs: what it lacks to the best link. A link that is not known is the worst, never the best."""
    best = max(map(max, links))
    return [[0 if i == j else best - link for j, link in enumerate(row)] for i, row in enumerate(links)]


def choose_closest(
    costs: Matrix, parents: Sequence[str], devices: Sequence[int], must: Sequence[int], size: int
) -> tuple[tuple[int, ...], bool]:
    """The devices that cost least, and whether that is certain. `parents`: of these devices, in their order."""
    usable: dict[str, list[int]] = {}
    for parent, device in zip(parents, devices, strict=True):
        if device not in must:
            usable.setdefault(parent, []).append(device)
    groups = [usable[parent] for parent in sorted(usable, key=lambda parent: (len(usable[parent]), parent))]
    need = size - len(must)
    if need in {0, len(devices) - len(must)}:
        return tuple(devices if need else must), True
    found = Search(costs, groups, must, need)
    return (*found.chosen, *must), found.exact


class Search:
    """One request. `chosen` and `exact` are the answer."""

    def __init__(self, costs: Matrix, groups: Sequence[Sequence[int]], must: Sequence[int], need: int) -> None:
        """`groups`: without `must`, in order. Expects 0 < need < all devices of the groups."""
        self._costs, self._groups = costs, groups
        self._sizes = [len(group) for group in groups]
        self._rows = [_sum_rows(costs, group) for group in groups]
        self._inside = [_prefix_costs(costs, group) for group in groups]
        self._never = 1 + sum(map(sum, costs))  # costs more than any choice
        self._known: dict[int, tuple[list[int], dict[int, list[int]]]] = {}
        pull = _sum_rows(costs, must)
        self._before = self._twins(pull)
        self._work = 0
        cost, self.chosen = self._begin(pull, need)
        self._best = (cost, len(groups) + 1)  # cost and groups; one found by the search goes before
        self._extend((), 0, pull, need)
        self.exact = self._work <= WORK_MAX

    def _extend(self, whole: tuple[int, ...], cost: int, pull: list[int], need: int) -> None:
        """Ends the choice with one more group, or adds one whole. `pull`: per device, what it costs with the choice.

        Choices come in order: a later one must be better. One that uses up its last group has it after the others.
        """
        self._work += len(pull)
        first = whole[-1] + 1 if whole else 0
        for number, size in enumerate(self._sizes):
            if size < need or (size == need and number < first) or self._is_later_twin(number, whole):
                continue
            made = (cost + self._price(pull, number, need), len(whole) + 1)
            if made < self._best:
                self._best = made
                self.chosen = [i for group in whole for i in self._groups[group]] + list(self._groups[number][:need])
        for number in range(first, len(self._sizes)):
            size = self._sizes[number]
            if size >= need or self._is_later_twin(number, whole):
                continue
            if self._work > WORK_MAX:
                return
            longer, total = (*whole, number), cost + self._price(pull, number, size)
            then = list(map(add, pull, self._rows[number]))
            for i in self._groups[number]:
                then[i] = self._never
            if self._may_win(longer, total, then, need - size):
                self._extend(longer, total, then, need - size)

    def _may_win(self, whole: tuple[int, ...], cost: int, pull: list[int], need: int) -> bool:
        """No set of so many devices costs less than those that cost least with the choice and their nearest."""
        open_to, near = self._after(whole[-1])
        if len(open_to) < need:
            return False
        least = 2 * cost + sum(sorted([2 * pull[i] + near[i][need - 1] for i in open_to])[:need])
        best, groups = self._best
        return least < 2 * best or (least == 2 * best and len(whole) + 1 < groups)

    def _price(self, pull: list[int], number: int, take: int) -> int:
        """What the first devices of a group cost with each other and with the choice."""
        return self._inside[number][take] + sum([pull[i] for i in self._groups[number][:take]])

    # --- To begin with --------------------------------------------------------------------------------------------

    def _after(self, last: int) -> tuple[list[int], dict[int, list[int]]]:
        """Devices that may join a choice whose last whole group this is; an earlier group can give a part of itself.

        And for each of them, what it costs at least with one more, with two more, and so on.
        """
        known = self._known.get(last)
        if known is None:
            parts = [number for number, size in enumerate(self._sizes) if number > last or size > 1]
            open_to = [i for number in parts for i in self._groups[number]]
            known = next((other for other in self._known.values() if other[0] == open_to), None)
            if known is None:
                # A device costs nothing with itself: the first of each row.
                near = {i: list(accumulate(sorted(map(self._costs[i].__getitem__, open_to)))) for i in open_to}
                known = open_to, near
            self._known[last] = known
        return known

    def _is_later_twin(self, number: int, whole: tuple[int, ...]) -> bool:
        """Whether it, or its interchangeable group that must be chosen before it, is out of the question."""
        before = self._before[number]
        return number in whole or (before >= 0 and before not in whole)

    def _twins(self, pull: list[int]) -> list[int]:
        """Per group, the one before it with which it is interchangeable; -1: none."""
        before: list[int] = []
        for number in range(len(self._groups)):
            twins = (other for other in range(number - 1, -1, -1) if self._same(pull, other, number))
            before.append(next(twins, -1))
        return before

    def _same(self, pull: list[int], one: int, other: int) -> bool:
        """Whether two groups cost the same, device by device, with all others and with each other."""
        costs, these, those = self._costs, self._groups[one], self._groups[other]
        if len(these) != len(those) or self._inside[one] != self._inside[other]:
            return False
        for i, j in zip(these, those, strict=True):
            row, mirrored = costs[i], list(costs[j])
            for k, m in zip(these, those, strict=True):
                mirrored[k], mirrored[m] = mirrored[m], mirrored[k]
            if pull[i] != pull[j] or row != mirrored:
                return False
        return True

    def _begin(self, pull: list[int], need: int) -> tuple[int, list[int]]:
        """A fair choice and what it costs: to some first group, the group that costs least per device is added."""
        seeds = [number for number, before in enumerate(self._before) if before < 0]
        return min(self._add_cheapest(pull, need, seed) for seed in seeds[:_SEEDS])

    def _add_cheapest(self, pull: list[int], need: int, number: int) -> tuple[int, list[int]]:
        cost, left = 0, set(range(len(self._groups)))
        chosen: list[int] = []
        while True:
            left.remove(number)
            take = min(need, self._sizes[number])
            cost += self._price(pull, number, take)
            chosen += self._groups[number][:take]
            need -= take
            if not need:
                return cost, chosen
            pull = list(map(add, pull, self._rows[number]))
            takes = [(min(need, self._sizes[other]), other) for other in left]
            number = min([(self._price(pull, other, count) / count, other) for count, other in takes])[1]


def _sum_rows(costs: Matrix, members: Sequence[int]) -> list[int]:
    """Per device, what it costs with all of these."""
    return list(map(sum, zip(*[costs[i] for i in members], strict=True))) or [0] * len(costs)


def _prefix_costs(costs: Matrix, members: Sequence[int]) -> list[int]:
    """What the first so many cost together."""
    made = [0]
    for count, i in enumerate(members):
        row = costs[i]
        made.append(made[-1] + sum([row[j] for j in members[:count]]))
    return made
