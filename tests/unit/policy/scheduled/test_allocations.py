"""Allocations: what containers were given counts until the kubelet gives it to somebody else."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.model.names import DeviceId, SlotId
from fairlead.policy.scheduled.allocations import Allocation, Draft
from fairlead.policy.scheduled.match import is_under_way

CARD, OTHER = DeviceId("card-a"), DeviceId("card-b")


def slots(*numbers: int) -> frozenset[SlotId]:
    return frozenset(SlotId(f"s{number}") for number in numbers)


def allocation(
    uid: str, *numbers: int, container: str = "main", init: bool = False, confirmed: bool = False
) -> Allocation:
    return Allocation(uid, container, slots(*numbers), (CARD,), 1.0, init=init, confirmed=confirmed)


def test_what_the_kubelet_gives_away_again_is_held_by_nobody():
    allocations = Draft([allocation("a", 1, 2), allocation("b", 3, confirmed=True)])
    allocations = allocations.released(slots(2, 3, 9)).draft()
    assert allocations.load(CARD) == 0
    assert [allocations.holder(SlotId(f"s{number}")) for number in (1, 2, 3)] == [None] * 3


def test_who_was_given_them_is_not_asked_for_again_until_the_kubelet_is_heard():
    allocations = Draft([allocation("a", 1, 2, confirmed=True)])
    assert not allocations.unconfirmed
    allocations = allocations.released(slots(1)).draft()
    assert ("a", "main") in allocations
    assert allocations.unconfirmed


def test_an_admission_whose_slots_are_given_away_does_not_go_on():
    allocations = Draft()
    allocations.add(allocation("a", 1))
    allocations = allocations.released(slots(5)).draft()
    assert allocations.latest == "a"
    allocations = allocations.released(slots(1)).draft()
    assert allocations.latest == ""


def test_slots_of_an_init_container_are_used_again_and_free_nobody():
    allocations = Draft([allocation("a", 1, 2, container="setup", init=True)], latest="a")
    allocations = allocations.released(slots(1, 2)).draft()
    assert allocations.holder(SlotId("s1")) == allocation("a", 1, 2, container="setup", init=True)
    assert allocations.latest == "a"


def test_others_keep_what_they_have():
    allocations = Draft([allocation("a", 1, 2), allocation("b", 3)])
    allocations = allocations.released(slots(1)).draft()
    assert (allocations.load(CARD), allocations.load(OTHER)) == (1, 0)
    assert allocations.holder(SlotId("s3")) == allocation("b", 3)


def test_only_an_admission_that_began_with_a_question_may_go_on():
    """A kubelet asks for a preference first. Who never asks is not taken to use slots again."""
    allocations = Draft([allocation("a", 1, 2)], latest="a")
    assert is_under_way(allocations, sorted(slots(1)))
    allocations.add(replace(allocation("b", 3), unasked=True))
    assert not is_under_way(allocations, sorted(slots(3)))
