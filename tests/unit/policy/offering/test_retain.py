"""A slot that may be in use never vanishes."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.model.health import Health
from fairlead.model.inventory import ALL_HEALTHY
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.policy.offering.retain import retain, withhold_held

NOBODY: frozenset[SlotId] = frozenset()


def resource(*ids: str) -> Resource:
    return Resource(ResourceName("example.com/gpu"), tuple(Slot(SlotId(i), DeviceId(i)) for i in ids))


def listed(of: Resource) -> list[tuple[str, float | None]]:
    return [(slot.id, slot.retired_s) for slot in of.slots]


def held(*ids: str) -> frozenset[SlotId]:
    return frozenset(SlotId(i) for i in ids)


def test_a_first_list_is_taken_as_it_is() -> None:
    new = resource("a", "b")
    assert retain(None, new, None, now_s=5.0) is new


def test_an_unchanged_list_is_the_same_object() -> None:
    new = resource("a", "b")
    assert retain(resource("a", "b"), new, NOBODY, now_s=5.0) is new


def test_a_slot_that_left_is_listed_last_as_retired_and_unhealthy() -> None:
    kept = retain(resource("a", "c", "b"), resource("z"), NOBODY, now_s=5.0)
    assert listed(kept) == [("z", None), ("a", 5.0), ("b", 5.0), ("c", 5.0)]
    assert kept.slots[1].condition(ALL_HEALTHY).health is Health.UNHEALTHY


def test_a_retired_slot_leaves_when_the_hold_is_over_and_nobody_holds_it() -> None:
    kept = retain(resource("a"), resource(), NOBODY, now_s=5.0, hold_s=60.0)
    assert listed(retain(kept, resource(), NOBODY, now_s=64.9, hold_s=60.0)) == [("a", 5.0)]
    assert listed(retain(kept, resource(), NOBODY, now_s=65.0, hold_s=60.0)) == []


def test_a_held_slot_stays_however_long_it_takes() -> None:
    kept = retain(resource("a"), resource(), held("a"), now_s=5.0)
    assert listed(retain(kept, resource(), held("a"), now_s=1e9)) == [("a", 5.0)]


def test_not_knowing_who_holds_it_keeps_it() -> None:
    kept = retain(resource("a"), resource(), None, now_s=5.0)
    assert listed(retain(kept, resource(), None, now_s=1e9)) == [("a", 5.0)]


def test_a_slot_that_comes_back_is_offered_again() -> None:
    kept = retain(resource("a", "b"), resource("b"), NOBODY, now_s=5.0)
    back = retain(kept, resource("a", "b"), NOBODY, now_s=6.0)
    assert listed(back) == [("a", None), ("b", None)]


def test_retired_slots_in_the_new_list_keep_their_time() -> None:
    kept = retain(resource("a"), resource("b"), NOBODY, now_s=5.0)
    again = retain(resource("a", "b"), kept, NOBODY, now_s=9.0)
    assert listed(again) == [("b", None), ("a", 5.0)]


IDS = st.frozensets(st.sampled_from("abcde"))


@given(st.lists(st.tuples(IDS, st.none() | IDS, st.floats(0, 100)), min_size=1, max_size=12))
def test_through_any_history_held_slots_stay_and_offered_slots_are_offered(
    history: list[tuple[frozenset[str], frozenset[str] | None, float]],
) -> None:
    current: Resource | None = None
    now_s = 0.0
    for offered, holders, passed_s in history:
        now_s += passed_s
        before = {slot.id for slot in current.slots} if current else set()
        new = resource(*sorted(offered))
        current = retain(current, new, None if holders is None else held(*holders), now_s=now_s)
        after = {slot.id for slot in current.slots}
        assert len(after) == len(current.slots)
        assert {slot.id for slot in current.slots if slot.retired_s is None} == offered
        assert (before if holders is None else before & holders) <= after
        assert replace(current, slots=current.slots[: len(offered)]) == new


def test_while_it_is_not_known_who_holds_what_only_slots_that_are_proven_free_leave() -> None:
    kept = retain(resource("a", "b"), resource(), None, now_s=5.0, is_free=lambda slot: slot.id == "a")
    assert listed(kept) == [("a", 5.0), ("b", 5.0)]  # an Allocate may be under way
    later = retain(kept, resource(), None, now_s=65.0, is_free=lambda slot: slot.id == "a")
    assert listed(later) == [("b", 5.0)]


def test_what_pod_resources_says_counts_more_than_a_proof() -> None:
    kept = retain(resource("a"), resource(), held("a"), now_s=5.0, is_free=lambda _slot: True)
    assert listed(retain(kept, resource(), held("a"), now_s=65.0, is_free=lambda _slot: True)) == [("a", 5.0)]


def test_a_device_that_moved_since_it_was_known_who_holds_what_is_kept_back_till_it_is_known_again() -> None:
    before, after = ResourceName("example.com/whole"), ResourceName("example.com/part")
    left = replace(retain(resource("a", "b"), resource(), NOBODY, now_s=5.0), name=before)
    moved = {before: left, after: replace(resource("a", "c"), name=after)}
    for held_now, known_s, kept_back, since_s in (
        ({}, 4.0, ["a"], 5.0),
        ({}, 6.0, [], 0.0),
        ({before: held("a")}, 6.0, ["a"], 0.0),
    ):
        made, unsure_s = withhold_held(moved, held_now, (), known_s)
        assert [slot.id for slot in made[after].slots if slot.withheld] == kept_back
        assert unsure_s == since_s
