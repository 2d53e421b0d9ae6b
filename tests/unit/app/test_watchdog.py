"""When a loop counts as hanging, and where it says that it hangs. Times are given."""

from __future__ import annotations

import sys

from fairlead.app.watchdog import BLOCKED_S, FROZEN_S, Pulse, Verdict, places

REST_S = 10.0


def test_a_loop_that_turns_is_well():
    pulse = Pulse(limit_s=60)
    for number in range(5):
        now_s = number * REST_S
        pulse.ask(now_s)
        assert not pulse.turned()
        assert pulse.judge(now_s + REST_S, slept_s=REST_S) is Verdict.WELL


def test_a_hang_is_told_once_and_over_at_the_limit():
    pulse = Pulse(limit_s=60)
    pulse.ask(0)
    verdicts = [pulse.judge(now_s / 2, slept_s=0.5) for now_s in range(121)]
    assert verdicts.index(Verdict.BLOCKED) == BLOCKED_S * 2
    assert verdicts.count(Verdict.BLOCKED) == 1
    assert verdicts.index(Verdict.OVER) == 120
    assert pulse.turned()  # it was told, so its end is told


def test_a_second_hang_is_told_again():
    pulse = Pulse(limit_s=60)
    for begin_s in (0, 100):
        pulse.ask(begin_s)
        assert pulse.judge(begin_s + BLOCKED_S, slept_s=0.5 + begin_s) is Verdict.BLOCKED
        assert pulse.turned()


def test_a_short_limit_is_told_of_before_it_is_reached():
    pulse = Pulse(limit_s=1)
    pulse.ask(0)
    assert pulse.judge(0.5, slept_s=0.5) is Verdict.BLOCKED
    assert pulse.judge(1, slept_s=0.5) is Verdict.OVER


def test_a_process_that_was_frozen_did_not_hang():
    """Stopped by a signal or with its machine: the watcher did not run either."""
    pulse = Pulse(limit_s=60)
    pulse.judge(0, slept_s=REST_S)
    pulse.ask(0)
    assert pulse.judge(1000, slept_s=REST_S) is not Verdict.OVER
    assert pulse.blocked_s(1000) == REST_S
    assert pulse.judge(1000 + 50, slept_s=50 - FROZEN_S) is Verdict.OVER


def test_a_signal_makes_the_limit_short():
    pulse = Pulse(limit_s=60)
    pulse.ask(0)
    assert pulse.judge(4, slept_s=4, limit_s=5) is Verdict.WELL
    assert pulse.judge(5, slept_s=1, limit_s=5) is Verdict.OVER


def test_a_loop_that_is_slow_already_has_its_time_after_a_signal():
    pulse = Pulse(limit_s=60)
    pulse.ask(0)
    assert pulse.judge(20, slept_s=20) is Verdict.BLOCKED
    pulse.ask_anew(20)
    assert pulse.judge(24, slept_s=4, limit_s=5) is Verdict.WELL
    assert pulse.judge(25, slept_s=1, limit_s=5) is Verdict.OVER


def test_without_a_limit_nothing_ends():
    pulse = Pulse(limit_s=float("inf"))
    pulse.ask(0)
    assert pulse.judge(1e6, slept_s=1e6) is Verdict.BLOCKED


def test_a_place_is_a_file_and_a_line():
    at, via = places(sys._getframe())
    assert at.startswith(f"{__file__}:")
    assert at.endswith(" in test_a_place_is_a_file_and_a_line")
    assert 0 < len(via) <= 4
    assert places(None) == ("unknown", [])
