"""How long questions may keep the kubelet waiting, all together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.scheduled.waitbudget import MOST_S, REFILL_S, WaitBudget

LOOP_S = 300.0  # the kubelet's health check fails when its loop has not turned for so long


@given(st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 60.0)), max_size=60))
def test_in_any_five_minutes_the_waits_stay_below_a_minute(story: list[tuple[float, float]]):
    patience, now_s = WaitBudget(), 1000.0
    waits: list[tuple[float, float]] = []
    for pause_s, wanted_s in story:
        now_s += pause_s
        waited_s = min(wanted_s, patience.left(now_s))
        now_s += waited_s
        patience.spend(now_s, waited_s)
        waits.append((now_s, waited_s))
    for end_s, _ in waits:
        within = [waited_s for at_s, waited_s in waits if end_s - LOOP_S < at_s - waited_s and at_s <= end_s]
        assert sum(within) <= MOST_S * (1 + LOOP_S / REFILL_S) + 1e-6


def test_it_comes_back_with_time():
    patience = WaitBudget()
    assert patience.left(0.0) == MOST_S
    patience.spend(10.0, MOST_S)
    assert patience.left(10.0) == 0.0
    assert patience.left(10.0 + REFILL_S / 2) == MOST_S / 2
    assert patience.left(10.0 + 2 * REFILL_S) == MOST_S
