import pytest

from fairlead.standin.topology import Hint, Policy, decide, hints_for, split

TWO_EACH = {"a": (0,), "b": (0,), "c": (1,), "d": (1,)}
NODES = (0, 1)


def hint(*nodes: int, preferred: bool) -> Hint:
    return Hint(frozenset(nodes), preferred)


def test_every_combination_that_fits_is_a_hint_and_the_smallest_are_preferred() -> None:
    assert hints_for(TWO_EACH, TWO_EACH, (), 2, NODES) == [
        hint(0, preferred=True),
        hint(1, preferred=True),
        hint(0, 1, preferred=False),
    ]


def test_preferred_is_judged_as_if_all_devices_were_free() -> None:
    # One node could hold both, were it empty; so spanning two is possible but not preferred.
    assert hints_for(TWO_EACH, {"a", "c"}, (), 2, NODES) == [hint(0, 1, preferred=False)]


def test_a_request_no_single_node_could_ever_hold_prefers_two() -> None:
    assert hints_for(TWO_EACH, TWO_EACH, (), 3, NODES) == [hint(0, 1, preferred=True)]


def test_reusable_devices_must_lie_inside_a_hint() -> None:
    assert hints_for(TWO_EACH, {"b", "c", "d"}, {"a"}, 1, NODES) == [
        hint(0, preferred=True),
        hint(0, 1, preferred=False),
    ]


def test_a_device_on_two_nodes_counts_for_each() -> None:
    assert hints_for({"a": (0, 1)}, {"a"}, (), 1, NODES) == [
        hint(0, preferred=True),
        hint(1, preferred=True),
        hint(0, 1, preferred=False),
    ]


def test_nodes_the_machine_does_not_have_are_ignored() -> None:
    assert hints_for({"a": (0,), "b": (7,)}, {"a", "b"}, (), 1, NODES) == [hint(0, preferred=True)]


SPANNING = [hint(0, 1, preferred=False)]
ON_NODE_1 = [hint(1, preferred=True), hint(0, 1, preferred=False)]


@pytest.mark.parametrize(
    ("policy", "admitted"), [("none", True), ("best-effort", True), ("restricted", False), ("single-numa-node", False)]
)
def test_a_spanning_placement_that_is_not_preferred(policy: Policy, admitted: bool) -> None:
    assert decide(policy, [SPANNING], NODES)[1] is admitted


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_a_preferred_single_node_is_taken_by_every_policy(policy: Policy) -> None:
    assert decide(policy, [ON_NODE_1], NODES) == (hint(1, preferred=True), True)


def test_restricted_takes_two_nodes_where_no_smaller_set_could_ever_do() -> None:
    needs_two = [hint(0, 1, preferred=True)]
    assert decide("restricted", [needs_two], NODES)[1]
    assert not decide("single-numa-node", [needs_two], NODES)[1]


def test_two_resources_that_prefer_different_nodes_do_not_align() -> None:
    elsewhere = [hint(0, preferred=True), hint(0, 1, preferred=False)]
    assert not decide("restricted", [ON_NODE_1, elsewhere], NODES)[1]
    assert decide("restricted", [ON_NODE_1, ON_NODE_1], NODES) == (hint(1, preferred=True), True)


def test_resources_align_only_if_they_prefer_exactly_the_same_nodes() -> None:
    needs_both = [hint(0, 1, preferred=True)]
    fits_one = [hint(0, preferred=True)]
    assert decide("restricted", [fits_one, needs_both], NODES) == (hint(0, preferred=False), False)


def test_a_resource_without_preference_leaves_the_choice_to_the_others() -> None:
    assert decide("single-numa-node", [None, ON_NODE_1], NODES) == (hint(1, preferred=True), True)
    assert decide("single-numa-node", [None], NODES) == (Hint(None, preferred=True), True)


@pytest.mark.parametrize(
    ("policy", "admitted"), [("best-effort", True), ("restricted", False), ("single-numa-node", False)]
)
def test_an_impossible_request_is_admitted_only_by_best_effort(policy: Policy, admitted: bool) -> None:
    assert decide(policy, [[]], NODES)[1] is admitted


def test_among_preferred_hints_the_narrowest_and_lowest_wins() -> None:
    wide = [hint(0, 1, preferred=True), hint(1, preferred=True), hint(0, preferred=True)]
    assert decide("restricted", [wide], NODES)[0] == hint(0, preferred=True)


def test_devices_split_into_aligned_unaligned_and_placeless() -> None:
    places = {"a": (0,), "b": (1,), "c": (0, 1), "d": ()}
    assert split(places, places, frozenset({0})) == ({"a", "c"}, {"b"}, {"d"})
    assert split(places, places, None) == (set(), set(), {"a", "b", "c", "d"})


FOUR_NODES = (0, 1, 2, 3)


def test_two_resources_that_cannot_align_settle_as_wide_as_the_needier_one() -> None:
    needs_two = [hint(0, 1, preferred=False), hint(0, 1, 2, preferred=False), hint(0, 1, 2, 3, preferred=False)]
    needs_one = [hint(0, preferred=False), hint(0, 1, preferred=False), hint(0, 1, 2, preferred=False)]
    assert decide("best-effort", [needs_two, needs_one], FOUR_NODES)[0] == hint(0, 1, preferred=False)
    assert decide("best-effort", [needs_one, needs_two], FOUR_NODES)[0] == hint(0, 1, preferred=False)


def test_hints_below_the_needed_width_grow_towards_it() -> None:
    # Every intersection is narrower than three nodes; the widest of them comes closest.
    one = [hint(0, 1, 2, preferred=False)]
    other = [hint(2, 3, 1, preferred=False), hint(0, 3, 2, preferred=False), hint(0, 1, 3, preferred=False)]
    assert decide("best-effort", [one, other], FOUR_NODES)[0] == hint(0, 1, preferred=False)
    narrow = [hint(1, preferred=False), hint(1, 2, preferred=False)]
    assert decide("best-effort", [one, narrow], FOUR_NODES)[0] == hint(1, 2, preferred=False)
