"""Alignment: which whole devices go together, by the links between them.

The objective, in this order, for a choice S out of the available devices:

1. links inside S, plus those inside the best partition of the rest into groups of the same size (a last smaller group
   counts what it holds): the next requests of this size count as much as this one;
2. links inside S are at least four fifths of the most that a choice of this value has: what this request gets is
   certain, the next ones may never come;
3. the weakest full group of S and that partition: no later request should be left with worse than it must;
4. links inside S;
5. fewest links cut between S and the rest: a single does not split a pair while a loose device is free;
6. fewest NUMA nodes spanned;
7. lowest positions.

Up to EXACT_MAX devices the answer is exact. Above that, 4, 5 and 7 are followed in a bounded search.
Knows nothing of slots, ids or strategies: devices are positions in a matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.policy.cover import Cover
from fairlead.policy.groups import Groups, Matrix, find_kinds
from fairlead.policy.grow import grow
from fairlead.policy.swap import links_of_good_partition

EXACT_MAX = 16


def is_near(links: int, most: int) -> bool:
    """Whether a request may be given so many links where it could have the most, for an even share of later ones."""
    return 5 * links >= 4 * most


def align(weights: Matrix, numa: Sequence[Sequence[int]], must: Sequence[int], size: int) -> tuple[int, ...]:
    """The choice, as ascending positions. Expects 0 < size, no more than there are, and `must` within that."""
    if size == len(weights):
        return tuple(range(size))
    if size == len(must):
        return tuple(sorted(must))
    if len(weights) > EXACT_MAX:
        return grow(weights, must, size)
    if size == 1:
        return (min(range(len(weights)), key=lambda i: (sum(weights[i]), len(set(numa[i])), i)),)
    kinds = find_kinds(weights, numa, must)
    if len(weights) <= 2 * size:
        return _first_of_two(weights, Groups(weights, kinds, len(weights) - size), numa, size)
    known = links_of_good_partition(weights, must, size)
    return _first_of_many(Groups(weights, kinds, size), numa, size, known)


def _first_of_two(weights: Matrix, groups: Groups, numa: Sequence[Sequence[int]], size: int) -> tuple[int, ...]:
    """The rest is one group, and no larger: so the rest is chosen. All links follow from its own."""
    block = groups.fields[0] if groups.kinds[0].block else 0
    rest = groups.layer(groups.devices - size)
    even = groups.devices == 2 * size  # then the rest counts as a full group too
    all_links = sum(map(sum, weights)) // 2
    best = -1
    equals: list[tuple[int, int, int]] = []
    for code, inside, degree in zip(rest.codes, rest.inside, rest.degrees, strict=True):
        if code & block:
            continue
        chosen = all_links - degree + inside
        if chosen + inside > best:
            best, equals = chosen + inside, []
        if chosen + inside == best:
            equals.append((min(chosen, inside) if even else 0, chosen, code))
    most = max(chosen for _, chosen, _ in equals)
    near = [entry for entry in equals if is_near(entry[1], most)]
    first = max(near)[:2]
    return _in_order(groups, numa, [groups.whole - code for *key, code in near if tuple(key) == first])[0][1]


def _first_of_many(groups: Groups, numa: Sequence[Sequence[int]], size: int, known: int) -> tuple[int, ...]:
    """Of all groups that some best partition holds, the first by the later objectives."""
    layer = groups.layer(size)
    cover = Cover(groups, layer, size, known)
    block = groups.fields[0] if groups.kinds[0].block else 0
    held = {code: inside for code, (_, inside) in cover.used.items() if not block or code & block}
    most = max(held.values())
    degree_of = dict(zip(layer.codes, layer.degrees, strict=True))
    # With equal links inside, fewer links in all are fewer links cut.
    ranked = [
        (-min(inside, cover.weakest_beside(code)), -inside, degree_of[code], code)
        for code, inside in held.items()
        if is_near(inside, most)
    ]
    first = min(ranked)[:3]
    return _in_order(groups, numa, [code for *key, code in ranked if tuple(key) == first])[0][1]


def _in_order(
    groups: Groups, numa: Sequence[Sequence[int]], codes: Iterable[int]
) -> list[tuple[int, tuple[int, ...], int]]:
    """Fewest NUMA nodes, then lowest positions."""
    found = []
    for code in codes:
        members = groups.members(code)
        found.append((len({node for i in members for node in numa[i]}), members, code))
    found.sort()
    return found
