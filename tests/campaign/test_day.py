"""The short form of the day. `python -m tests.campaign.day` is the long one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.campaign.day import BOUNDS, WARM_HOURS, Count, judge, run

FIRST = Count(hour=WARM_HOURS, pss_mb=40.0, own_mb=30.0, objects=50_000, blocks=200_000, fds=30, threads=5)
LATER = replace(FIRST, hour=WARM_HOURS + 1)


@pytest.mark.timeout(300)  # of real time; a busy machine takes longer
def test_a_node_that_is_watched_keeps_nothing_open() -> None:
    day = run(0.25, seed=3, every_s=300.0)
    assert not day.failure, f"{day.failure}; again: python -m tests.campaign.day --hours 0.25 --every 300 --seed 3"
    assert len(day.counts) == 3
    assert day.seen["page opened"] == 1
    assert day.seen["/metrics"] > 40
    assert day.seen["what-if"]


@pytest.mark.parametrize(
    ("later", "told"),
    [
        (replace(LATER, fds=31), "+1 fds"),
        (replace(LATER, fds=29), "-1 fds"),
        (replace(LATER, threads=6), "+1 threads"),
        (replace(LATER, twice=("fairlead-http",)), "two threads fairlead-http"),
        (replace(LATER, own_mb=40.0), "+10 own_mb"),
        (replace(LATER, objects=FIRST.objects + int(BOUNDS["objects"]) + 1), "+1001 objects"),
        (replace(LATER, blocks=FIRST.blocks + int(BOUNDS["blocks"]) + 1), "+2001 blocks"),
    ],
)
def test_what_is_left_behind_is_told(later: Count, told: str) -> None:
    assert told in judge([FIRST, LATER, later])
    assert not judge([FIRST, LATER])


def test_memory_may_grow_in_the_first_hours_and_files_may_not() -> None:
    cold = replace(FIRST, hour=0.5, objects=1, blocks=1, own_mb=1.0)
    assert not judge([cold, FIRST, LATER])
    assert "+1 fds" in judge([cold, replace(cold, hour=1.0, fds=31)])
