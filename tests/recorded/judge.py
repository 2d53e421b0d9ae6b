"""Judges a preference: is it lawful, and is it as good as the recorded one? Knows nothing of how either was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import combinations

from fairlead.model.inventory import Links

EXACT_MAX = 8  # beyond this, the value of a node takes too long to compute here


def is_lawful(chosen: Sequence[str], available: Sequence[str], must: Sequence[str], size: int) -> bool:
    return len(chosen) == len(set(chosen)) == size and set(must) <= set(chosen) <= set(available)


def is_satisfiable(available: Sequence[str], must: Sequence[str], size: int) -> bool:
    return size >= 1 and set(must) <= set(available) and len(set(must)) <= size <= len(set(available))


def node_value(links: Links, available: Sequence[str], size: int, group: Sequence[str]) -> int:
    """What the group scores, and the best that the rest can still be cut into."""

    @cache
    def score(devices: tuple[str, ...]) -> int:
        return sum(links.between(one, other) for one, other in combinations(devices, 2))

    @cache
    def best(rest: tuple[str, ...]) -> int:
        if len(rest) <= size:
            return score(rest)
        short = size - (-len(rest) % size)  # one group may have too few
        found = -1
        for count in {size, short}:
            for others in combinations(rest[1:], count - 1):
                taken = (rest[0], *others)
                left = tuple(device for device in rest if device not in taken)
                if count == size or len(left) % size == 0:
                    found = max(found, score(taken) + best(left))
        return found

    rest = tuple(device for device in dict.fromkeys(available) if device not in set(group))
    return score(tuple(sorted(group))) + best(rest)


def own_value(links: Links, group: Sequence[str]) -> int:
    """What the request itself gets."""
    return sum(links.between(one, other) for one, other in combinations(group, 2))


def opened(chosen: Sequence[str], available: Sequence[str], known: Sequence[str]) -> int:
    """How many idle GPUs are opened: all of their slots were free."""
    total = Counter(_gpu(slot) for slot in known)
    free = Counter(_gpu(slot) for slot in available)
    return sum(free[gpu] == total[gpu] for gpu in {_gpu(slot) for slot in chosen})


def is_spread(chosen: Sequence[str], available: Sequence[str], must: Sequence[str], known: Sequence[str]) -> bool:
    """Whether some order of the picks takes each time a GPU that is least used, and least picked among those."""
    picked = Counter(_gpu(slot) for slot in chosen) - Counter(_gpu(slot) for slot in must)
    total = Counter(_gpu(slot) for slot in known)
    free = Counter(_gpu(slot) for slot in available if slot in set(known)) - Counter(_gpu(slot) for slot in must)
    taken: Counter[str] = Counter()
    for _ in range(sum(picked.values())):
        levels = {gpu: (total[gpu] - free[gpu], taken[gpu]) for gpu in free if free[gpu] > 0}
        least = min(levels.values())
        gpu = next((gpu for gpu, level in levels.items() if level == least and taken[gpu] < picked[gpu]), None)
        if gpu is None:
            return False
        free[gpu] -= 1
        taken[gpu] += 1
    return True


def _gpu(slot: str) -> str:
    return slot.partition("::")[0]
