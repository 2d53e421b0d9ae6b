"""The best partition of all devices into groups of one size and one smaller remainder: a minimum-cost exact cover.

Each device gets a price, such that no group holds more links than its devices cost together. What a group lacks to its
price is its cost, never negative; so the best partition is the cheapest one (weak duality), and any group that costs
more than some known partition can be left out. With good prices few groups remain. What remains is searched depth
first, with a memo per set of devices left: exponential at worst. Exact, whatever the prices are.

Knows nothing of which group of the partition will be taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from fairlead.policy.placement.groups import Groups, GroupsOfSize

Entry: TypeAlias = tuple[int, int, int, int]  # cost, code, size, links inside (of a full group)

_NO_LIMIT = 1 << 200  # a small group is never the weakest: it is no offer to the next request

_FEW = 48  # so few groups are searched faster than they are priced again
_ROUNDS = 4


class ExactCover:
    """The groups that a best partition can hold, and those that the best ones do hold."""

    def __init__(self, groups: Groups, full: GroupsOfSize, size: int, known: int) -> None:
        """`known`: the links inside some partition. The better it is, the less is left to search."""
        self._groups, self._size = groups, size
        budget = self._set_prices(full) - size * known
        for number in range(_ROUNDS):
            self._leave_out(budget)
            if not budget or len(self._costs) <= _FEW:
                break
            budget = self._improve_prices(budget, share=2 if number == 0 else 1)
        self._search = self._searched()
        best = self._search.cheapest(groups.whole, groups.devices, budget)
        assert best is not None, "the known partition is within the budget"
        self._best = best
        self.used = self._search.used_by_best(best)

    def weakest_beside(self, code: int) -> int:
        """The links in the weakest full group of the rest, in the best partition that has the strongest such group."""
        cost, _ = self.used[code]
        return self._search.weakest(self._groups.whole - code, self._groups.devices - self._size, self._best - cost)

    def _set_prices(self, full: GroupsOfSize) -> int:
        """Each device costs an equal share of the best group that it could be in. Scaled by the size: whole numbers.

        Returns what all devices cost together: the bound.
        """
        groups, size = self._groups, self._size
        prices = [0] * len(groups.classes)
        unpriced = sum(groups.fields)
        for position in sorted(range(len(full.codes)), key=full.inside.__getitem__, reverse=True):
            if full.codes[position] & unpriced:
                for number, field in enumerate(groups.fields):
                    if full.codes[position] & field & unpriced:
                        prices[number] = full.inside[position] * groups.classes[number].unit
                        unpriced &= ~field
                if not unpriced:
                    break
        self._codes, self._inside = full.codes[:], full.inside[:]
        self._first_small = len(full.codes)
        self._costs = [
            price - size * inside for price, inside in zip(groups.sums(prices, size), full.inside, strict=True)
        ]
        bound = sum(price * count for price, count in zip(prices, groups.counts, strict=True))
        rest = groups.devices % size
        if not rest:
            return bound
        small, must = groups.of_size(rest), groups.must_field
        for code, inside, price in zip(small.codes, small.inside, groups.sums(prices, rest), strict=True):
            if not code & must:  # those go with a full group
                self._codes.append(code)
                self._inside.append(inside)
                self._costs.append(price - size * inside)
        return bound - self._lower_small()

    def _lower_small(self) -> int:
        """Every partition has exactly one small group, so a common part of their costs decides nothing."""
        small = self._costs[self._first_small :]
        if not small:
            return 0
        least = min(small)
        self._costs[self._first_small :] = [cost - least for cost in small]
        return least

    def _leave_out(self, budget: int) -> None:
        positions = [position for position, cost in enumerate(self._costs) if cost <= budget]
        self._first_small = sum(1 for position in positions if position < self._first_small)
        self._codes = [self._codes[position] for position in positions]
        self._inside = [self._inside[position] for position in positions]
        self._costs = [self._costs[position] for position in positions]

    def _improve_prices(self, budget: int, share: int) -> int:
        """Lowers each price as far as no group's cost falls below 0; at first by a share only, so that none starves."""
        codes, costs = self._codes, self._costs
        for count, field, shift in zip(self._groups.counts, self._groups.fields, self._groups.shifts, strict=True):
            holders = [position for position, code in enumerate(codes) if code & field]
            if count == 1:
                step = min([costs[position] for position in holders]) // share
                for position in holders:
                    costs[position] -= step
            else:
                times = [(codes[position] & field) >> shift for position in holders]
                step = min([costs[position] // n for position, n in zip(holders, times, strict=True)]) // share
                for position, n in zip(holders, times, strict=True):
                    costs[position] -= step * n
            budget -= step * count
        return budget - self._lower_small()

    def _searched(self) -> PartitionSearch:
        rest = self._groups.devices % self._size
        full = zip(self._costs, self._codes[: self._first_small], self._inside, strict=False)
        small = zip(self._costs[self._first_small :], self._codes[self._first_small :], strict=True)
        entries = [(cost, code, self._size, inside) for cost, code, inside in full]
        entries += [(cost, code, rest, _NO_LIMIT) for cost, code in small]
        return PartitionSearch(self._groups, self._size, entries)


class PartitionSearch:
    """Partitions out of a given list of groups."""

    def __init__(self, groups: Groups, size: int, entries: list[Entry]) -> None:
        self._groups, self._size = groups, size
        self._known: dict[int, int] = {0: 0}
        self._failed: dict[int, int] = {}
        self._strength: dict[int, int] = {0: _NO_LIMIT}
        self._class_of = [number for number, count in enumerate(groups.counts) for _ in range(count.bit_length() + 1)]
        # Some group must hold the lowest device that is left; so groups are found by the lowest class in them.
        self._every: list[list[Entry]] = [[] for _ in groups.classes]
        entries.sort()
        for entry in entries:
            code = entry[1]
            self._every[self._class_of[(code & -code).bit_length() - 1]].append(entry)
        self._full = [[entry for entry in listed if entry[2] == size] for listed in self._every]

    def cheapest(self, state: int, left: int, budget: int) -> int | None:
        """The cost of the cheapest partition of what is left, or None if it is over the budget."""
        known = self._known.get(state)
        if known is not None:
            return known if known <= budget else None
        if self._failed.get(state, -1) >= budget:
            return None
        guards = self._groups.guards
        best: int | None = None
        limit = budget
        for cost, code, size, _ in self._starting(state, left):
            if cost > limit:
                break
            after = (state | guards) - code
            if after & guards != guards:
                continue
            rest = self.cheapest(after ^ guards, left - size, limit - cost)
            if rest is not None:
                best = cost + rest
                limit = best - 1
        if best is None:
            self._failed[state] = budget
        else:
            self._known[state] = best
        return best

    def used_by_best(self, cost: int) -> dict[int, tuple[int, int]]:
        """The full groups that are part of a cheapest partition: what each costs, and the links inside."""
        used: dict[int, tuple[int, int]] = {}
        seen: set[int] = set()
        ahead = [(self._groups.whole, self._groups.devices, cost)]
        while ahead:
            state, left, budget = ahead.pop()
            for (step_cost, code, size, inside), rest in self._steps(state, left, budget):
                if size == self._size:
                    used[code] = step_cost, inside
                if rest not in seen:
                    seen.add(rest)
                    ahead.append((rest, left - size, budget - step_cost))
        return used

    def weakest(self, state: int, left: int, budget: int) -> int:
        """The links in the weakest full group of a partition that costs no more than this, at best."""
        known = self._strength.get(state)
        if known is None:
            known = -1
            for (cost, _, size, inside), rest in self._steps(state, left, budget):
                if inside > known:
                    known = max(known, min(inside, self.weakest(rest, left - size, budget - cost)))
            self._strength[state] = known
        return known

    def _steps(self, state: int, left: int, budget: int) -> Iterator[tuple[Entry, int]]:
        """The first groups of the partitions within the budget, which is the least there is, and what each leaves."""
        guards = self._groups.guards
        for entry in self._starting(state, left):
            if entry[0] > budget:
                break
            after = (state | guards) - entry[1]
            if after & guards == guards:
                rest = after ^ guards
                if self.cheapest(rest, left - entry[2], budget - entry[0]) is not None:
                    yield entry, rest

    def _starting(self, state: int, left: int) -> list[Entry]:
        """The groups that hold the lowest device left. The small one is used up when the rest divides evenly."""
        table = self._every if left % self._size else self._full
        return table[self._class_of[(state & -state).bit_length() - 1]]
