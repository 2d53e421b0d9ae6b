"""A unit under another plugin's ids: why it grew, and what is left to run for where it must not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.policy.placement.cards import GIB, NAME, card

from fairlead.model.inventory import Inventory
from fairlead.model.resource import MemoryTerms, Terms
from fairlead.policy.offering.memory import (
    KUBELET_MESSAGE_MAX_BYTES,
    MIB,
    count_slots,
    explain_unit,
    list_bytes,
    settle_unit,
)
from fairlead.policy.offering.rules import ANY, Offering, Rule, make_offering
from fairlead.policy.offering.stall import MAX_STALL_S, stall_s

IDS = "fakeID---{index}---"
TWO, ONE = [card(number, 80 * GIB) for number in range(2)], [card(0, 80 * GIB)]


def offered(share: MemoryTerms) -> Offering:
    return make_offering(Inventory(tuple(TWO)), [Rule(ANY, NAME, terms=Terms(memory=share))])


def test_the_unit_that_pods_are_written_for_needs_no_words():
    assert explain_unit(ONE, MemoryTerms(MIB, ids=IDS), MIB) == ""


def test_a_unit_of_our_own_ids_needs_no_words():
    assert explain_unit(TWO, MemoryTerms(MIB), 2 * MIB) == ""


def test_a_unit_that_grew_says_from_what_and_why_and_what_an_amount_means():
    share = MemoryTerms(MIB, ids=IDS)
    assert explain_unit(TWO, share, settle_unit(TWO, share)) == (
        "a unit is 128MiB, not 1MiB: 163,840 slots of 1MiB make a list of 5,056,820 bytes, over the kubelet's "
        "4,194,304, and 81,920 of 2MiB would keep it busy for 1,007 s. An amount of 1 means 128MiB here"
    )


def test_a_unit_that_is_the_least_that_fits_says_nothing_of_a_smaller_one():
    share = MemoryTerms(MIB, ids=IDS, max_stall_s=0)
    assert explain_unit(TWO, share, settle_unit(TWO, share)).endswith(
        "bytes, over the kubelet's 4,194,304. An amount of 1 means 2MiB here"
    )


@given(
    st.sampled_from([IDS, "{id}-_-", "{index}-"]),
    st.lists(st.sampled_from([8, 16, 24, 40, 48, 80, 141, 192]), min_size=1, max_size=16),
    st.sampled_from([MIB, 3 * MIB, 10 * MIB, GIB]),
)
def test_their_unit_stays_where_its_list_fits_and_else_becomes_the_first_that_the_kubelet_can_bear(
    ids: str, sizes: list[int], least: int
):
    cards = [replace(card(number, gib * GIB), index=str(number)) for number, gib in enumerate(sizes)]
    unit = settle_unit(cards, MemoryTerms(least, ids=ids))
    if list_bytes(cards, least, ids) <= KUBELET_MESSAGE_MAX_BYTES:
        assert unit == least
        return
    steps = [least << step for step in range(1, 20)]
    assert unit == next(step for step in steps if stall_s(*[count_slots(cards, step)] * 2) <= MAX_STALL_S)
    assert list_bytes(cards, unit, ids) <= KUBELET_MESSAGE_MAX_BYTES


def test_how_long_the_kubelet_may_be_busy_with_a_unit_that_grows_can_be_given():
    def unit(max_stall_s: float | None) -> int:
        return settle_unit(TWO, MemoryTerms(MIB, ids=IDS, max_stall_s=max_stall_s)) // MIB

    assert [unit(bound) for bound in (0, 100.0, 10.0, None, 0.01)] == [2, 8, 32, 128, 1024]


def test_a_unit_that_stays_after_a_card_has_gone_does_not_blame_the_kubelet():
    share = MemoryTerms(MIB, ids=IDS)
    kept = settle_unit(ONE, share, keep_bytes=128 * MIB)
    assert kept == 128 * MIB
    assert "it was chosen for more devices, and stays while the daemon runs" in explain_unit(ONE, share, kept)


def test_a_refused_unit_leaves_nothing_to_run_for_where_it_is_required():
    (why,) = offered(MemoryTerms(MIB, grow=False, required=True, ids=IDS)).needed
    assert why.startswith(f"{NAME} is not offered: ")
    assert "Set memory.unit to 2MiB or more" in why


def test_a_refused_unit_is_a_problem_only_where_it_is_not_required():
    offering = offered(MemoryTerms(MIB, grow=False, ids=IDS))
    assert (offering.needed, tuple(offering.refused.values())) == ((), offering.problems)
