"""What placement aims at, by brute force: every choice, every partition. Slow and plain, so that it can be believed."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations

Matrix = Sequence[Sequence[int]]


def best_choice(weights: Matrix, numa: Sequence[Sequence[int]], must: Sequence[int], size: int) -> tuple[int, ...]:
    everything = range(len(weights))
    ranked = [
        (rank(weights, numa, chosen), chosen) for chosen in combinations(everything, size) if set(must) <= set(chosen)
    ]
    best = min(rank[0] for rank, _ in ranked)
    most = max(-rank[2] for rank, _ in ranked if rank[0] == best)
    return min((rank, chosen) for rank, chosen in ranked if rank[0] == best and -5 * rank[2] >= 4 * most)[1]


def rank(weights: Matrix, numa: Sequence[Sequence[int]], chosen: tuple[int, ...]) -> tuple[int, int, int, int, int]:
    """Less is better, among choices that give the request nearly as much as any of the same value."""
    rest = tuple(i for i in range(len(weights)) if i not in chosen)
    own = inside(weights, chosen)
    later, weakest = best_partition(weights, rest, len(chosen))
    cut = sum(weights[i][j] for i in chosen for j in rest)
    return -(own + later), -min(own, weakest), -own, cut, len({node for i in chosen for node in numa[i]})


def inside(weights: Matrix, group: Sequence[int]) -> int:
    return sum(weights[i][j] for i, j in combinations(group, 2))


def strongest_of_best(weights: Matrix, devices: tuple[int, ...], size: int) -> tuple[int, int]:
    """The most links inside groups of this size and one smaller remainder; then the strongest full group of those."""

    @cache
    def best(left: tuple[int, ...]) -> tuple[int, int]:
        if not left:
            return 0, 0
        found = []
        for count in {size, len(left) % size} - {0}:
            for partners in combinations(left[1:], count - 1) if count <= len(left) else ():
                group = (left[0], *partners)
                total, strongest = best(tuple(i for i in left if i not in group))
                own = inside(weights, group)
                found.append((total + own, max(strongest, own) if count == size else strongest))
        return max(found)

    return best(devices)


def best_partition(weights: Matrix, devices: tuple[int, ...], size: int) -> tuple[int, int]:
    """The most links inside groups of this size and one smaller remainder; then the strongest weakest full group."""

    @cache
    def best(left: tuple[int, ...]) -> tuple[int, int]:
        if not left:
            return 0, 1 << 60
        found = []
        for count in {size, len(left) % size} - {0}:
            for partners in combinations(left[1:], count - 1) if count <= len(left) else ():
                group = (left[0], *partners)
                total, weakest = best(tuple(i for i in left if i not in group))
                own = inside(weights, group)
                found.append((total + own, min(weakest, own) if count == size else weakest))
        return max(found)

    return best(devices)


def first_cheapest(
    costs: Matrix, parents: Sequence[str], available: Sequence[int], must: Sequence[int], size: int
) -> list[int]:
    """The closest devices as AMD's plugin finds them: all orders of all sets of groups, breadth first."""
    if size == len(available):
        return list(available)
    usable = [i for i in available if i not in must]
    by_parent = {parents[i]: [j for j in usable if parents[j] == parents[i]] for i in usable}
    groups = [group for _, group in sorted(by_parent.items(), key=lambda entry: (len(entry[1]), entry[0]))]
    need = size - len(must)
    found: list[list[int]] = []
    level: list[tuple[int, ...]] = [()]
    while level:
        partial = []
        for chosen in level:
            have = [i for number in chosen for i in groups[number]]
            for number, group in enumerate(groups):
                if number in chosen:
                    continue
                if len(have) + len(group) >= need:
                    found.append([*have, *group[: need - len(have)], *must])
                else:
                    partial.append((*chosen, number))
        level = partial
    return min(found, key=lambda choice: inside(costs, choice))
