"""A device falls by cause, comes back by cause, and never by silence."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.policy.wakeups import next_wakeup_s

from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.policy.health import CAUSES_MAX, FLAPPING, Track, Tuning, clean, cleared, fault, tick

TUNING = Tuning(
    suspect_s=10.0,
    clean_probes=2,
    hold_s=20.0,
    hold_growth=2.0,
    hold_max_s=60.0,
    probation_s=30.0,
    flap_window_s=1000.0,
    flap_count=4,
    quarantine_s=5000.0,
)
APP = Cause("xid-31", CauseKind.APPLICATION, "page fault in a program")
BLIP = Cause("probe-timeout", CauseKind.TRANSIENT, "no answer")
ECC = Cause("xid-48", CauseKind.NEEDS_RESET)
DEAD = Cause("xid-79", CauseKind.PERMANENT, "fell off the bus")


def seen(*events: tuple[float, Cause], track: Track | None = None) -> Track:
    track = track or Track()
    for now_s, cause in events:
        track = fault(track, cause, now_s, TUNING)
    return track


def probed_clean(track: Track, *times_s: float) -> Track:
    for now_s in times_s:
        track = clean(track, now_s, TUNING)
    return track


def state(track: Track) -> tuple[Health, str, float]:
    cause = track.condition.cause
    return track.condition.health, cause.code if cause else "", track.condition.since_s


def test_an_application_fault_is_noted_and_changes_nothing_else() -> None:
    for before in (Track(), seen((1.0, BLIP)), seen((1.0, DEAD))):
        after = fault(before, APP, 5.0, TUNING)
        assert after == replace(before, note=APP)
        assert fault(after, APP, 6.0, TUNING) is after


def test_one_transient_fault_makes_it_suspect_but_still_offered() -> None:
    track = seen((1.0, BLIP))
    assert state(track) == (Health.SUSPECT, "probe-timeout", 1.0)
    assert track.condition.health.usable


def test_a_second_transient_fault_within_the_window_withdraws_it() -> None:
    assert state(seen((1.0, BLIP), (10.9, BLIP))) == (Health.UNHEALTHY, "probe-timeout", 10.9)


def test_a_second_transient_fault_after_the_window_only_makes_it_suspect_again() -> None:
    assert state(seen((1.0, BLIP), (11.0, BLIP))) == (Health.SUSPECT, "probe-timeout", 11.0)


def test_a_suspect_heals_when_the_window_passes() -> None:
    track = seen((1.0, BLIP))
    assert probed_clean(track, 10.9) is track
    assert state(tick(track, 11.0, TUNING)) == (Health.HEALTHY, "", 11.0)


@pytest.mark.parametrize("cause", [ECC, DEAD])
def test_a_heavier_fault_withdraws_it_at_once(cause: Cause) -> None:
    assert state(seen((3.0, cause))) == (Health.UNHEALTHY, cause.code, 3.0)
    assert state(seen((1.0, BLIP), (3.0, cause))) == (Health.UNHEALTHY, cause.code, 3.0)


def test_the_way_back_needs_the_hold_and_the_clean_probes_and_then_probation() -> None:
    track = probed_clean(seen((0.0, ECC)), 5.0, 19.0)
    assert track.condition.health is Health.UNHEALTHY  # clean enough, but held
    track = tick(track, 20.0, TUNING)
    assert state(track) == (Health.PROBATION, "xid-48", 20.0)
    assert not track.condition.health.usable
    assert tick(track, 49.9, TUNING) is track
    assert state(clean(track, 50.0, TUNING)) == (Health.HEALTHY, "", 50.0)


def test_the_hold_alone_does_not_bring_a_probed_device_back() -> None:
    track = probed_clean(seen((0.0, ECC)), 1.0)
    assert tick(track, 1e6, TUNING) is track
    assert clean(track, 1e6, TUNING).condition.health is Health.PROBATION


def test_a_fault_while_withdrawn_starts_the_hold_and_the_count_again() -> None:
    track = fault(probed_clean(seen((0.0, ECC)), 5.0, 6.0), BLIP, 15.0, TUNING)
    assert state(track) == (Health.UNHEALTHY, "xid-48", 0.0)  # the first cause stays in sight
    assert probed_clean(track, 34.0, 34.9).condition.health is Health.UNHEALTHY
    assert probed_clean(track, 35.0).condition.health is Health.UNHEALTHY
    assert probed_clean(track, 34.0, 35.0).condition.health is Health.PROBATION


def test_a_worse_fault_while_withdrawn_takes_over_the_cause() -> None:
    track = fault(seen((0.0, ECC)), DEAD, 15.0, TUNING)
    assert state(track) == (Health.UNHEALTHY, "xid-79", 0.0)
    assert probed_clean(track, 100.0, 200.0).condition.health is Health.UNHEALTHY


def test_the_same_code_may_turn_out_worse_but_never_better() -> None:
    worse = replace(ECC, kind=CauseKind.PERMANENT)
    track = seen((0.0, ECC), (1.0, worse), (2.0, ECC))
    assert track.causes == (worse,)


def test_a_fault_in_probation_doubles_the_hold_up_to_the_cap() -> None:
    track, now_s, holds = seen((0.0, ECC)), 0.0, []
    tuning = replace(TUNING, flap_count=100)
    for _ in range(4):
        holds.append(track.until_s - now_s)
        track = clean(clean(track, now_s, tuning), track.until_s, tuning)
        assert track.condition.health is Health.PROBATION
        now_s = track.condition.since_s + 1.0
        track = fault(track, BLIP, now_s, tuning)
        assert state(track) == (Health.UNHEALTHY, "probe-timeout", now_s)
    assert holds == [20.0, 40.0, 60.0, 60.0]


def test_a_fall_long_after_the_last_one_is_held_as_if_it_were_the_first() -> None:
    track = tick(probed_clean(seen((0.0, ECC)), 20.0, 20.0), 50.0, TUNING)
    assert seen((60.0, ECC), track=track).hold_s == 40.0
    assert seen((1000.0, ECC), track=track).hold_s == 20.0


def fall_and_return(track: Track, now_s: float) -> tuple[Track, float]:
    """One full round through probation back to healthy."""
    track = fault(track, ECC, now_s, TUNING)
    now_s = track.until_s
    track = probed_clean(track, now_s, now_s)
    now_s += TUNING.probation_s
    return tick(track, now_s, TUNING), now_s


def flapping() -> tuple[Track, float]:
    track, now_s = Track(), 0.0
    for _ in range(TUNING.flap_count - 1):
        track, now_s = fall_and_return(track, now_s)
        assert track.condition.health is Health.HEALTHY
    return fault(track, ECC, now_s, TUNING), now_s


def test_too_many_falls_in_the_window_are_quarantine() -> None:
    track, now_s = flapping()
    assert state(track) == (Health.UNHEALTHY, FLAPPING, now_s)
    assert str(track.condition.cause) == "flapping: withdrawn 4 times in 1000 s; last by xid-48"
    assert probed_clean(track, now_s + 4998.0, now_s + 4999.0).condition.health is Health.UNHEALTHY
    assert probed_clean(track, now_s + 4999.0, now_s + 5000.0).condition.health is Health.PROBATION


@pytest.mark.parametrize("code", [None, FLAPPING])
def test_an_operator_ends_a_quarantine_and_the_past_is_forgotten(code: str | None) -> None:
    track, now_s = flapping()
    track = cleared(track, code, now_s + 1.0, TUNING)
    assert track.condition.health is Health.PROBATION
    again = fault(track, ECC, now_s + 2.0, TUNING)
    assert (state(again)[1], again.hold_s) == ("xid-48", 20.0)


def test_a_cleared_cause_does_not_end_a_quarantine_early() -> None:
    track, now_s = flapping()
    track = cleared(track, "xid-48", now_s + 1.0, TUNING)
    assert state(track)[:2] == (Health.UNHEALTHY, FLAPPING)
    assert next_wakeup_s(track, TUNING) == now_s + 5000.0
    assert tick(track, now_s + 5000.0, TUNING).condition.health is Health.PROBATION


def test_a_permanent_cause_stays_in_sight_even_when_flapping() -> None:
    track, now_s = flapping()
    track = fault(track, DEAD, now_s + 1.0, TUNING)
    assert state(track)[1] == "xid-79"
    assert cleared(track, FLAPPING, now_s + 2.0, TUNING) is track
    by_fall, now_s = Track(), 0.0
    for _ in range(TUNING.flap_count - 1):
        by_fall, now_s = fall_and_return(by_fall, now_s)
    by_fall = fault(by_fall, DEAD, now_s, TUNING)
    assert (state(by_fall)[1], by_fall.until_s) == ("xid-79", now_s + 5000.0)


def test_clearing_a_permanent_cause_leads_through_the_hold_and_probation() -> None:
    track = cleared(seen((0.0, DEAD)), "xid-79", 5.0, TUNING)
    assert track.condition.health is Health.UNHEALTHY
    assert next_wakeup_s(track, TUNING) == 20.0
    track = tick(track, 20.0, TUNING)
    assert state(track) == (Health.PROBATION, "xid-79", 20.0)
    assert tick(track, 50.0, TUNING).condition.health is Health.HEALTHY


def test_an_operator_clears_everything_at_once() -> None:
    assert state(cleared(seen((0.0, ECC), (1.0, DEAD)), None, 5.0, TUNING)) == (Health.PROBATION, "xid-79", 5.0)


def test_clearing_one_of_two_causes_shows_the_other() -> None:
    track = cleared(seen((0.0, DEAD), (1.0, ECC)), "xid-79", 5.0, TUNING)
    assert state(track) == (Health.UNHEALTHY, "xid-48", 0.0)
    assert next_wakeup_s(track, TUNING) is None  # probes must confirm what nobody cleared
    assert probed_clean(track, 21.0, 22.0).condition.health is Health.PROBATION


def test_clearing_a_suspect_heals_it() -> None:
    for code in ("probe-timeout", None):
        assert state(cleared(seen((0.0, BLIP)), code, 5.0, TUNING)) == (Health.HEALTHY, "", 5.0)


def test_clearing_what_is_not_there_changes_nothing() -> None:
    probation = cleared(seen((0.0, ECC)), None, 5.0, TUNING)
    for track in (Track(), seen((0.0, BLIP)), seen((0.0, DEAD)), probation):
        assert cleared(track, "xid-1", 6.0, TUNING) is track
    assert cleared(Track(), None, 6.0, TUNING).falls == ()
    assert cleared(probation, None, 6.0, TUNING) is probation


def test_clearing_a_healthy_device_forgets_its_falls() -> None:
    track, _ = fall_and_return(Track(), 0.0)
    assert (len(track.falls), cleared(track, None, 99.0, TUNING).falls) == (1, ())


def test_without_probes_a_transient_cause_passes_by_time_alone() -> None:
    track = seen((0.0, BLIP), (1.0, BLIP), track=Track(probed=False))
    assert next_wakeup_s(track, TUNING) == 21.0
    track = tick(track, 21.0, TUNING)
    assert track.condition.health is Health.PROBATION
    assert tick(track, 51.0, TUNING).condition.health is Health.HEALTHY


def test_without_probes_a_needed_reset_waits_until_it_was_seen() -> None:
    track = seen((0.0, ECC), track=Track(probed=False))
    assert next_wakeup_s(track, TUNING) is None
    assert tick(track, 1e6, TUNING) is track
    assert cleared(track, "xid-48", 1e6, TUNING).condition.health is Health.PROBATION


def test_the_next_wakeup_is_when_the_next_step_is_due() -> None:
    assert next_wakeup_s(Track(), TUNING) is None
    assert next_wakeup_s(seen((0.0, BLIP)), TUNING) == 10.0
    assert next_wakeup_s(seen((0.0, DEAD)), TUNING) is None
    assert next_wakeup_s(seen((0.0, ECC)), TUNING) is None
    ready = probed_clean(seen((0.0, ECC)), 1.0, 2.0)
    assert next_wakeup_s(ready, TUNING) == 20.0
    assert next_wakeup_s(tick(ready, 20.0, TUNING), TUNING) == 50.0


# What holds through any history.

CAUSES = st.sampled_from([APP, BLIP, ECC, DEAD])
EVENTS = st.one_of(
    st.tuples(st.just("fault"), CAUSES),
    st.tuples(st.just("clean"), st.none()),
    st.tuples(st.just("tick"), st.none()),
    st.tuples(st.just("cleared"), st.sampled_from([None, BLIP, ECC, DEAD])),
)
HISTORY = st.lists(st.tuples(EVENTS, st.floats(0, 120)), max_size=40)
Event = tuple[str, Cause | None]
STEPS: dict[str, Callable[[Track, Cause | None, float], Track]] = {
    "fault": lambda track, cause, now_s: fault(track, cause or BLIP, now_s, TUNING),
    "clean": lambda track, _, now_s: clean(track, now_s, TUNING),
    "tick": lambda track, _, now_s: tick(track, now_s, TUNING),
    "cleared": lambda track, cause, now_s: cleared(track, cause.code if cause else None, now_s, TUNING),
}


def replay(history: list[tuple[Event, float]], *, probed: bool) -> list[tuple[str, Cause | None, float, Track]]:
    track, now_s = Track(probed=probed), 0.0
    told = []
    for (name, cause), passed_s in history:
        now_s += passed_s
        track = STEPS[name](track, cause, now_s)
        told.append((name, cause, now_s, track))
    return told


@given(HISTORY, st.booleans())
def test_a_permanent_cause_never_returns_without_an_acknowledgement(
    history: list[tuple[Event, float]], probed: bool
) -> None:
    latched = False
    for name, cause, _, track in replay(history, probed=probed):
        if name == "fault" and cause is DEAD:
            latched = True
        elif name == "cleared" and cause in {None, DEAD}:
            latched = False
        if latched:
            assert track.condition.health is Health.UNHEALTHY


@given(HISTORY, st.booleans())
def test_every_step_follows_the_map_and_has_a_time_and_a_cause(
    history: list[tuple[Event, float]], probed: bool
) -> None:
    allowed = {
        (Health.HEALTHY, Health.SUSPECT),
        (Health.HEALTHY, Health.UNHEALTHY),
        (Health.SUSPECT, Health.HEALTHY),
        (Health.SUSPECT, Health.UNHEALTHY),
        (Health.UNHEALTHY, Health.PROBATION),
        (Health.PROBATION, Health.HEALTHY),
        (Health.PROBATION, Health.UNHEALTHY),
        # A fault that comes after its window or probation ran out, before anyone ticked: both steps at once.
        (Health.PROBATION, Health.SUSPECT),
    }
    told = [("", None, 0.0, Track(probed=probed)), *replay(history, probed=probed)]
    for (_, _, _, before), (name, _, now_s, after) in pairwise(told):
        one, other = before.condition, after.condition
        if one.health is other.health and one.since_s == other.since_s:
            continue
        assert one.health is other.health or (one.health, other.health) in allowed
        assert other.since_s == now_s
        assert (other.cause is None) == (other.health is Health.HEALTHY)
        if other.health in {Health.SUSPECT, Health.UNHEALTHY}:
            assert name == "fault"


@given(HISTORY, st.booleans())
def test_a_wakeup_is_never_in_vain(history: list[tuple[Event, float]], probed: bool) -> None:
    for _, _, now_s, track in replay(history, probed=probed):
        wakeup_s = next_wakeup_s(track, TUNING)
        if wakeup_s is None:
            assert tick(track, now_s + 1e9, TUNING) is track
        else:
            assert tick(track, max(wakeup_s, now_s), TUNING).condition != track.condition


@given(HISTORY, st.booleans())
def test_many_falls_in_the_window_always_end_in_a_long_hold(history: list[tuple[Event, float]], probed: bool) -> None:
    falls: list[float] = []
    before = Condition()
    for name, cause, now_s, track in replay(history, probed=probed):
        if name == "cleared" and cause is None:
            falls.clear()
        if track.condition.health is Health.UNHEALTHY and before.health is not Health.UNHEALTHY:
            falls = [fall_s for fall_s in falls if now_s - fall_s < TUNING.flap_window_s] + [now_s]
            if len(falls) >= TUNING.flap_count:
                assert track.until_s >= now_s + TUNING.quarantine_s
        before = track.condition


def test_open_causes_are_bounded_and_the_weightiest_stay():
    track = fault(Track(), Cause("worst", CauseKind.PERMANENT), 0.0)
    for number in range(1000):
        track = fault(track, Cause(f"c{number}", CauseKind.NEEDS_RESET), 0.0)
    assert len(track.causes) == CAUSES_MAX
    assert track.causes[0].code == "worst"
