"""A unit under another plugin's ids: why it grew, and what is left to run for where it must not."""

from __future__ import annotations

from tests.unit.policy.placement.cards import GIB, NAME, card

from fairlead.model.inventory import Inventory
from fairlead.model.resource import MemoryTerms, Terms
from fairlead.policy.offering.memory import MIB, explain_unit, settle_unit
from fairlead.policy.offering.rules import ANY, Offering, Rule, make_offering

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
        "a unit is 2MiB, not 1MiB: 163,840 slots of 1MiB make a list of 5,056,820 bytes, over the kubelet's 4,194,304. "
        "An amount of 1 means 2MiB here"
    )


def test_a_unit_that_stays_after_a_card_has_gone_does_not_blame_the_kubelet():
    share = MemoryTerms(MIB, ids=IDS)
    kept = settle_unit(ONE, share, keep_bytes=2 * MIB)
    assert kept == 2 * MIB
    assert "it was chosen for more devices, and stays while the daemon runs" in explain_unit(ONE, share, kept)


def test_a_refused_unit_leaves_nothing_to_run_for_where_it_is_required():
    (why,) = offered(MemoryTerms(MIB, grow=False, required=True, ids=IDS)).needed
    assert why.startswith(f"{NAME} is not offered: ")
    assert "Set memory.unit to 2MiB or more" in why


def test_a_refused_unit_is_a_problem_only_where_it_is_not_required():
    offering = offered(MemoryTerms(MIB, grow=False, ids=IDS))
    assert (offering.needed, tuple(offering.refused.values())) == ((), offering.problems)
