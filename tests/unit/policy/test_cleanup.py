"""Clean-up before reuse: after the last container, before the next, and never under another one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.names import ResourceName, SlotId
from fairlead.policy.cleanup import (
    SETTLE_S,
    Held,
    Stage,
    Start,
    Use,
    begin,
    break_off,
    cleaned_for,
    clear,
    condition_of,
    end,
    grant,
    is_due,
    start,
)

GPU = ResourceName("example.com/gpu")
ONE, TWO = (GPU, SlotId("a::0")), (GPU, SlotId("a::1"))
NONE: frozenset[Held] = frozenset()


def used(at_s: float = 0.0, *slots: Held) -> Use:
    return grant(Use(), slots or (ONE,), at_s)


def test_the_first_container_of_a_clean_device_starts_at_once():
    use = used()
    assert (use.stage, use.pending) == (Stage.USED, frozenset())
    assert start(use, [ONE], NONE, 1.0)[1] is Start.AT_ONCE


def test_a_device_is_due_when_its_last_container_has_left():
    use = used()
    assert not is_due(use, frozenset({ONE}), 100.0)
    assert not is_due(use, NONE, SETTLE_S - 0.1), "the kubelet does not name the holder at once"
    assert is_due(use, NONE, SETTLE_S)


def test_a_container_that_got_it_before_that_was_seen_waits_for_the_clean_up():
    use = grant(used(), [ONE], 50.0)
    after, how = start(use, [ONE], frozenset({ONE}), 51.0)
    assert how is Start.CLEAN_FIRST
    assert start(after, [ONE], frozenset({ONE}), 52.0)[1] is Start.AT_ONCE, "it starts again on what it has"


def test_an_init_container_and_the_one_after_it_are_cleaned_for_once():
    use = grant(grant(used(), [ONE], 50.0), [ONE], 50.1)  # both are granted before either starts
    after, how = start(use, [ONE], NONE, 51.0)
    assert how is Start.CLEAN_FIRST
    assert start(cleaned_for(after, [ONE], 52.0), [ONE], frozenset({ONE}), 60.0)[1] is Start.AT_ONCE


def test_a_shared_device_is_not_cleaned_under_another_container():
    use = grant(used(0.0, ONE), [TWO], 50.0)
    assert start(use, [TWO], frozenset({ONE, TWO}), 51.0)[1] is Start.SHARED
    assert start(use, [TWO], None, 51.0)[1] is Start.SHARED, "not known is not free"


def test_a_share_that_was_granted_a_moment_ago_counts_as_held():
    use = grant(grant(used(0.0, ONE), [ONE], 50.0), [TWO], 50.1)
    assert start(use, [TWO], frozenset({TWO}), 51.0)[1] is Start.SHARED


def test_a_whole_device_is_cleaned_even_where_holders_are_not_known():
    use = grant(used(), [ONE], 50.0)
    assert start(use, [ONE], None, 51.0)[1] is Start.CLEAN_FIRST


def test_it_is_kept_from_pods_while_it_is_cleaned_and_for_good_if_that_fails():
    cleaning = begin(used())
    held_back = condition_of(cleaning, 1.0)
    assert held_back is not None
    assert held_back.cause is not None
    assert (held_back.cause.code, held_back.health.usable) == ("unclean", False)
    assert end(cleaning, "") == Use()
    failed = end(cleaning, "scrub ended with exit code 3")
    quarantine = condition_of(failed, 1.0)
    assert quarantine is not None
    assert str(quarantine.cause) == "cleanup-failed: scrub ended with exit code 3"
    assert not is_due(failed, NONE, 1e6), "an operator looks first"
    assert is_due(clear(failed), NONE, 1e6)
    assert clear(used()) == used()


def test_what_is_granted_while_it_is_cleaned_is_used_from_then_on():
    """The kubelet may have given it out before it got the list in which it is unhealthy."""
    use = end(grant(begin(used()), [ONE], 50.0), "")
    assert (use.stage, use.pending) == (Stage.USED, frozenset())
    assert start(use, [ONE], NONE, 51.0)[1] is Start.AT_ONCE


def test_one_that_was_broken_off_begins_anew():
    assert is_due(break_off(begin(used())), NONE, SETTLE_S)


@given(st.lists(st.tuples(st.sampled_from(["grant", "start", "leave"]), st.sampled_from([ONE, TWO])), max_size=30))
def test_no_container_starts_on_what_another_one_left_and_none_is_cleaned_under(steps: list[tuple[str, Held]]):
    """A kubelet in any order: what it holds is known. Each slot is one container's."""
    use, held, now_s = Use(), set[Held](), 0.0
    granted: set[Held] = set()
    dirty = False  # a container that has left had the device since it was last cleaned
    for what, slot in steps:
        now_s += 100.0
        if what == "grant" and slot not in granted:
            granted.add(slot)
            held.add(slot)
            use = grant(use, [slot], now_s)
        elif what == "start" and slot in granted:
            use, how = start(use, [slot], frozenset(held), now_s)
            if how is Start.CLEAN_FIRST:
                assert held <= {slot}, "another container is on it"
                use, dirty = cleaned_for(use, [slot], now_s), False
            assert not dirty or held > {slot} or slot not in use.pending
        elif what == "leave" and slot in granted:
            granted.remove(slot)
            held.discard(slot)
            dirty = True
            if is_due(use, frozenset(held), now_s + 50.0):
                use, dirty = end(begin(use), ""), False
