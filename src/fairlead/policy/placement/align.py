"""Aligned placement: which whole devices go together, by the links between them.

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

Up to EXACT_MAX devices the answer is exact: the best partition is searched as an exact cover (`exactcover`), which is
exponential in the number of devices that are not interchangeable (`groups`). Above that a greedy search of bounded
length (`greedy`) follows 4, 5 and 7. Knows nothing of slots, ids or strategies: devices are positions in a matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.policy.placement.exactcover import ExactCover
from fairlead.policy.placement.greedy import choose_greedily
from fairlead.policy.placement.groups import Groups, Matrix, find_classes
from fairlead.policy.placement.pairwise import links_of_good_partition

EXACT_MAX = 16


def is_near_the_most(links: int, most: int) -> bool:
    """Whether a request may be given so many links where it could have the most, for an even share of later ones."""
    return 5 * links >= 4 * most


def align(weights: Matrix, numa: Sequence[Sequence[int]], must: Sequence[int], size: int) -> tuple[int, ...]:
    """The choice, as ascending positions. Expects 0 < size, no more than there are, and `must` within that."""
    if size == len(weights):
        return tuple(range(size))
    if size == len(must):
        return tuple(sorted(must))
    if len(weights) > EXACT_MAX:
        return choose_greedily(weights, must, size)
    if size == 1:
        return (min(range(len(weights)), key=lambda i: (sum(weights[i]), len(set(numa[i])), i)),)
    classes = find_classes(weights, numa, must)
    if len(weights) <= 2 * size:
        return _choose_with_one_rest(weights, Groups(weights, classes, len(weights) - size), numa, size)
    known = links_of_good_partition(weights, must, size)
    return _choose_from_best_partitions(Groups(weights, classes, size), numa, size, known)


def _choose_with_one_rest(weights: Matrix, groups: Groups, numa: Sequence[Sequence[int]], size: int) -> tuple[int, ...]:
    """The rest is one group, and no larger: so the rest is chosen. All links follow from its own."""
    rest, must = groups.of_size(groups.devices - size), groups.must_field
    even = groups.devices == 2 * size  # then the rest counts as a full group too
    all_links = sum(map(sum, weights)) // 2
    best = -1
    equals: list[tuple[int, int, int]] = []
    for code, inside, degree in zip(rest.codes, rest.inside, rest.degrees, strict=True):
        if code & must:
            continue
        chosen = all_links - degree + inside
        if chosen + inside > best:
            best, equals = chosen + inside, []
        if chosen + inside == best:
            equals.append((min(chosen, inside) if even else 0, chosen, code))
    most = max(chosen for _, chosen, _ in equals)
    near = [entry for entry in equals if is_near_the_most(entry[1], most)]
    first = max(near)[:2]
    return _on_fewest_nodes(groups, numa, (groups.whole - code for *key, code in near if tuple(key) == first))


def _choose_from_best_partitions(
    groups: Groups, numa: Sequence[Sequence[int]], size: int, known: int
) -> tuple[int, ...]:
    """Of all groups that some best partition holds, the first by the later objectives."""
    candidates = groups.of_size(size)
    cover = ExactCover(groups, candidates, size, known)
    must = groups.must_field
    held = {code: inside for code, (_, inside) in cover.used.items() if not must or code & must}
    most = max(held.values())
    degree_of = dict(zip(candidates.codes, candidates.degrees, strict=True))
    # With equal links inside, fewer links in all are fewer links cut.
    ranked = [
        (-min(inside, cover.weakest_beside(code)), -inside, degree_of[code], code)
        for code, inside in held.items()
        if is_near_the_most(inside, most)
    ]
    first = min(ranked)[:3]
    return _on_fewest_nodes(groups, numa, (code for *key, code in ranked if tuple(key) == first))


def _on_fewest_nodes(groups: Groups, numa: Sequence[Sequence[int]], codes: Iterable[int]) -> tuple[int, ...]:
    """The group that spans the fewest NUMA nodes; of several, the one with the lowest positions."""
    candidates = map(groups.members, codes)
    return min(candidates, key=lambda members: (len({node for i in members for node in numa[i]}), members))
