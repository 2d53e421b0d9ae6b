"""What an admission storm is: the same request, refused again and again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy import storms
from fairlead.policy.storms import Key, Known, Series, Tuning

TUNING = Tuning(refusals=3, window_s=60.0, delay_max_s=2.0)
THREE = Key("nvidia.com/gpu", (3,), "UnfitSlots")
ONE = Key("nvidia.com/gpu", (1,), "UnfitSlots")


def refuse(known: Known, *times_s: float, key: Key = THREE, tuning: Tuning = TUNING) -> tuple[Known, list[Series]]:
    found = []
    for now_s in times_s:
        known, series = storms.refused(known, key, f"reason {now_s:g}", now_s, tuning)
        found.append(series)
    return known, found


def test_the_third_refusal_within_the_window_is_a_storm() -> None:
    _, found = refuse({}, 0.0, 10.0, 20.0, 21.0)
    assert [series.storm for series in found] == [False, False, True, True]
    assert found[-1].count == 4
    assert found[-1].reason == "reason 20"  # it stays the same problem


def test_refusals_that_are_far_apart_are_none() -> None:
    assert not any(series.storm for series in refuse({}, *(number * 40.0 for number in range(20)))[1])


def test_other_amounts_are_another_request() -> None:
    known, _ = refuse({}, 0.0, 1.0)
    known, found = refuse(known, 2.0, key=ONE)
    assert not found[-1].storm
    assert refuse(known, 3.0)[1][-1].storm


def test_it_is_over_when_it_has_been_quiet_for_the_window() -> None:
    known, _ = refuse({}, 0.0, 1.0, 2.0)
    assert storms.passed(known, 61.0, TUNING) == (known, {})
    left, ended = storms.passed(known, 62.0, TUNING)
    assert (dict(left), set(ended)) == ({}, {THREE})


def test_refusals_are_held_back_longer_and_longer_and_never_too_long() -> None:
    _, found = refuse({}, *(float(number) for number in range(12)))
    delays = [storms.delay_s(series, TUNING) for series in found]
    assert delays[:5] == [0.0, 0.0, 0.1, 0.2, 0.4]
    assert delays == sorted(delays)
    assert delays[-1] == 2.0
    assert all(storms.delay_s(series, Tuning(refusals=3)) == 0.0 for series in found)


def test_without_a_number_nothing_is_a_storm() -> None:
    assert not any(series.storm for series in refuse({}, 0.0, 0.0, 0.0, tuning=Tuning(refusals=0))[1])


@given(st.lists(st.tuples(st.integers(0, 200), st.floats(0, 30)), max_size=300))
def test_what_is_kept_is_bounded(steps: list[tuple[int, float]]) -> None:
    known: Known = {}
    now_s = 0.0
    for number, pause_s in steps:
        now_s += pause_s
        known, series = storms.refused(known, Key("r", (number,), "x"), "why", now_s, TUNING)
        assert len(known) <= storms.KEPT
        assert len(series.times_s) <= TUNING.refusals
        assert 0.0 <= storms.delay_s(series, TUNING) <= TUNING.delay_max_s
