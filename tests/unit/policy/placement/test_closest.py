"""The closest devices: the best links, whole parents first, and AMD's order between equals. Exact, and soon done."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.policy.placement.oracle import Matrix, first_cheapest

from fairlead.policy.placement import closest
from fairlead.policy.placement.closest import Search, choose_closest, cost_rows

XGMI, PCIE, UNKNOWN = 10, 40, 50  # AMD's weights of a link; less is better


def weights(parents: list[str], numa: list[int], links: Matrix) -> Matrix:
    """AMD's weight of each pair: same GPU, link, same NUMA node."""
    every = range(len(parents))
    return [
        [
            0 if i == j else (10 << (parents[i] != parents[j])) + links[i][j] + (10 << (numa[i] != numa[j]))
            for j in every
        ]
        for i in every
    ]


def spx(count: int, link: dict[tuple[int, int], int]) -> Matrix:
    """Whole GPUs, half on each NUMA node."""
    links = [[link.get((min(i, j), max(i, j)), PCIE) for j in range(count)] for i in range(count)]
    return weights([f"{n:04}" for n in range(count)], [2 * n // count for n in range(count)], links)


def hives(count: int, size: int) -> Matrix:
    """GPUs that are joined within hives of so many."""
    return spx(count, {(i, j): XGMI for i, j in combinations(range(count), 2) if i // size == j // size})


def partitions(gpus: int, each: int) -> tuple[Matrix, list[str]]:
    count = gpus * each
    parents = [f"{n // each:04}" for n in range(count)]
    return weights(parents, [2 * (n // each) // gpus for n in range(count)], [[XGMI] * count] * count), parents


def answer(costs: Matrix, available: range | list[int], must: list[int], size: int, parents: list[str] | None = None):
    of = parents or [f"{n:04}" for n in range(len(costs))]
    chosen, exact = choose_closest(costs, [of[n] for n in available], list(available), must, size)
    assert exact
    return sorted(chosen), sum(costs[i][j] for i, j in combinations(chosen, 2))


MI210 = hives(8, 4)


@pytest.mark.parametrize(("size", "chosen", "score"), [(1, [0], 0), (3, [0, 1, 2], 120), (5, [0, 1, 2, 3, 4], 560)])
def test_two_quads(size: int, chosen: list[int], score: int):
    assert answer(MI210, range(8), [], size) == (chosen, score)


def test_a_quad_that_is_whole_goes_before_lower_devices_of_two():
    assert answer(MI210, range(2, 8), [], 3) == ([4, 5, 6], 120)
    assert answer(MI210, range(8), [5], 2) == ([4, 5], 40)
    assert answer(MI210, [0, 4, 5], [], 2) == ([4, 5], 40)


def test_a_link_that_is_not_known_is_the_worst():
    """With a weight of nothing it would be the best, and pull together what is farthest apart."""
    assert cost_rows([[0, 0, 30], [0, 0, 60], [30, 60, 0]]) == [[0, 60, 30], [60, 0, 0], [30, 0, 0]]


def test_a_gpu_that_is_broken_up_is_used_up_first():
    costs, parents = partitions(3, 4)
    assert answer(costs, [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11], [], 2, parents)[0] == [5, 6]


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Matrix, list[str], list[int], list[int], int]:
    """Small nodes of any shape: even, broken up, with uneven or unknown links, and devices that must be included."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=5) | st.lists(st.just(1), min_size=5, max_size=6))
    of = [number for number, size in enumerate(sizes) for _ in range(size)]
    parents, count = [f"{number:04}" for number in of], len(of)
    hives = draw(st.lists(st.integers(0, 1), min_size=len(sizes), max_size=len(sizes)))
    numa = (
        [hives[number] for number in of]
        if draw(st.booleans())
        else draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    )
    even = draw(st.booleans())
    links = [[0] * count for _ in range(count)]
    for i, j in combinations(range(count), 2):
        hived = XGMI if hives[of[i]] == hives[of[j]] else PCIE
        links[i][j] = links[j][i] = hived if even else draw(st.sampled_from([XGMI, XGMI, PCIE, UNKNOWN]))
    available = sorted(draw(st.sets(st.integers(0, count - 1), min_size=2)))
    must = sorted(draw(st.sets(st.sampled_from(available), max_size=min(2, len(available) - 1))))
    size = draw(st.integers(len(must) + 1, len(available)))
    return weights(parents, numa, links), parents, available, must, size


@given(nodes())
@settings(max_examples=300, deadline=None)
def test_the_answer_is_the_first_that_costs_least_in_amds_order(node):
    costs, parents, available, must, size = node
    chosen, exact = choose_closest(costs, [parents[n] for n in available], available, must, size)
    assert exact
    assert sorted(chosen) == sorted(first_cheapest(costs, parents, available, must, size))


@pytest.mark.parametrize(("of", "size"), [(4, 6), (4, 8), (8, 6), (8, 8), (2, 6), (2, 8), (16, 8)])
def test_sixteen_gpus_take_few_steps(of: int, size: int):
    """The other way round it is sixteen factorial."""
    search = Search(hives(16, of), [[n] for n in range(16)], [], size)
    assert search.exact
    assert search._work < closest.WORK_MAX / 20


@pytest.mark.parametrize(("free", "size"), [(63, 62), (64, 12), (64, 62), (63, 31)])
def test_partitions_take_few_steps(free: int, size: int):
    costs, parents = partitions(8, 8)
    groups = [[n for n in range(free) if n // 8 == gpu] for gpu in (7, 0, 1, 2, 3, 4, 5, 6)]
    search = Search(costs, groups, [], size)
    assert search.exact
    assert len(search.chosen) == size
    assert search._work < closest.WORK_MAX / 5
    assert parents


def test_a_search_that_takes_too_long_answers_what_it_has(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(closest, "WORK_MAX", 0)
    chosen, exact = choose_closest(MI210, [f"{n:04}" for n in range(8)], range(8), [], 5)
    assert not exact
    assert len(set(chosen)) == 5
