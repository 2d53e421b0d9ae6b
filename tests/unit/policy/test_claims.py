"""Claims: what containers were given counts until the kubelet gives it to somebody else."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.model.names import DeviceId, SlotId
from fairlead.policy.assign import is_under_way
from fairlead.policy.claims import Claim, Claims

CARD, OTHER = DeviceId("card-a"), DeviceId("card-b")


def slots(*numbers: int) -> frozenset[SlotId]:
    return frozenset(SlotId(f"s{number}") for number in numbers)


def claim(uid: str, *numbers: int, container: str = "main", init: bool = False, sure: bool = False) -> Claim:
    return Claim(uid, container, slots(*numbers), (CARD,), 1.0, init=init, sure=sure)


def test_what_the_kubelet_gives_away_again_is_held_by_nobody():
    claims = Claims([claim("a", 1, 2), claim("b", 3, sure=True)])
    claims.free(slots(2, 3, 9))
    assert claims.load(CARD) == 0
    assert [claims.holder(SlotId(f"s{number}")) for number in (1, 2, 3)] == [None] * 3


def test_who_was_given_them_is_not_asked_for_again_until_the_kubelet_is_heard():
    claims = Claims([claim("a", 1, 2, sure=True)])
    assert not claims.unsure
    claims.free(slots(1))
    assert ("a", "main") in claims
    assert claims.unsure


def test_an_admission_whose_slots_are_given_away_does_not_go_on():
    claims = Claims()
    claims.add(claim("a", 1))
    claims.free(slots(5))
    assert claims.latest == "a"
    claims.free(slots(1))
    assert claims.latest == ""


def test_slots_of_an_init_container_are_used_again_and_free_nobody():
    claims = Claims([claim("a", 1, 2, container="setup", init=True)], latest="a")
    claims.free(slots(1, 2))
    assert claims.holder(SlotId("s1")) == claim("a", 1, 2, container="setup", init=True)
    assert claims.latest == "a"


def test_others_keep_what_they_have():
    claims = Claims([claim("a", 1, 2), claim("b", 3)])
    claims.free(slots(1))
    assert (claims.load(CARD), claims.load(OTHER)) == (1, 0)
    assert claims.holder(SlotId("s3")) == claim("b", 3)


def test_only_an_admission_that_began_with_a_question_may_go_on():
    """A kubelet asks for a preference first. Who never asks is not taken to use slots again."""
    claims = Claims([claim("a", 1, 2)], latest="a")
    assert is_under_way(claims, sorted(slots(1)))
    claims.add(replace(claim("b", 3), blunt=True))
    assert not is_under_way(claims, sorted(slots(3)))
