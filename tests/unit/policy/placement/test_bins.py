"""Packing against brute force: idle bins opened, bins in all."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlead.policy.placement.bins import pack

Bins = list[tuple[int, bool, bool]]  # free, touched, idle


def cost(take: tuple[int, ...] | list[int], bins: Bins) -> tuple[int, int]:
    """Idle bins that are opened, and bins that the request was not in before."""
    opened = [(touched, idle) for count, (_, touched, idle) in zip(take, bins, strict=True) if count]
    return sum(idle for _, idle in opened), sum(not touched for touched, _ in opened)


@st.composite
def asks(draw: st.DrawFn) -> tuple[Bins, int]:
    made = st.tuples(st.integers(0, 4), st.sampled_from(["busy", "idle", "touched"]))
    bins = [(free, kind == "touched", kind == "idle") for free, kind in draw(st.lists(made, min_size=1, max_size=5))]
    return bins, draw(st.integers(0, sum(free for free, *_ in bins)))


@given(asks())
@settings(max_examples=400)
@example(([(3, False, False), (4, False, False), (4, False, False), (5, False, True)], 5))
def test_no_other_way_opens_fewer_idle_bins_or_takes_from_fewer(ask: tuple[Bins, int]) -> None:
    bins, need = ask
    free, touched, idle = ([part[n] for part in bins] for n in range(3))
    take = pack(free, [int(seen) for seen in touched], need, [bool(one) for one in idle])
    assert sum(take) == need
    assert all(count <= room for count, room in zip(take, free, strict=True))
    ways = (way for way in product(*(range(room + 1) for room in free)) if sum(way) == need)
    # Bins that the request is in cost nothing, and are used up first.
    assert cost(take, bins) == min(cost(way, bins) for way in ways)


@pytest.mark.parametrize(
    ("free", "idle", "need", "expected"),
    [
        ([3, 4, 4, 5], [0, 0, 0, 1], 5, [1, 4, 0, 0]),
        ([3, 4, 4, 5], [0, 0, 0, 0], 5, [0, 0, 0, 5]),
        ([3, 4, 4, 5], [0, 0, 0, 1], 12, [3, 4, 0, 5]),
        ([1, 5, 5, 5], [0, 1, 1, 1], 12, [0, 5, 5, 2]),
        ([1, 5, 5, 5], [0, 1, 1, 1], 11, [1, 5, 5, 0]),
    ],
)
def test_idle_bins_are_opened_last(free: list[int], idle: list[int], need: int, expected: list[int]) -> None:
    assert pack(free, [0] * len(free), need, [bool(one) for one in idle]) == expected
