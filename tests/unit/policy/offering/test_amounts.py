"""How much to publish, and what to change for it."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.device import Device
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import ALL_HEALTHY, Conditions, Inventory
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.quantity import AMOUNT_MAX
from fairlead.policy.offering.amounts import Amount, AmountChange, Posted, amended, count, needed_change
from fairlead.policy.offering.rules import Selector

CORE = ResourceName("example.com/core")
DEVICES = (Device("a", vendor="red"), Device("b", vendor="red"), Device("c", vendor="blue"))
ILL = Condition(Health.UNHEALTHY, Cause("xid-79", CauseKind.NEEDS_RESET))
SUSPECT = Condition(Health.SUSPECT, Cause("xid-48", CauseKind.TRANSIENT))
SOME_ILL = Conditions({DeviceId("b"): ILL, DeviceId("c"): SUSPECT})


def _posted(amounts: Mapping[str, str], owners: Mapping[str, str] | None = None) -> Posted:
    return Posted(amounts, amounts, owners or {})


def test_each_usable_device_counts():
    assert count(Inventory(DEVICES), SOME_ILL, [Amount(CORE, per_device=100)]) == {CORE: 200}


def test_devices_that_are_not_usable_count_where_a_scheduler_divides_by_the_number():
    assert count(Inventory(DEVICES), SOME_ILL, [Amount(CORE, per_device=1, unusable=True)]) == {CORE: len(DEVICES)}


def test_only_devices_that_match_count():
    red = Amount(CORE, Selector(vendors=("red",)), per_device=100)
    assert count(Inventory(DEVICES), ALL_HEALTHY, [red]) == {CORE: 200}


def test_entries_of_one_name_add_up_and_never_overflow():
    red, blue = (
        Amount(CORE, Selector(vendors=(colour,)), per_device=number) for colour, number in (("red", 1), ("blue", 50))
    )
    assert count(Inventory(DEVICES), ALL_HEALTHY, [red, blue, Amount(CORE, total=7)]) == {CORE: 59}
    assert count(Inventory(DEVICES), ALL_HEALTHY, [Amount(CORE, total=AMOUNT_MAX), Amount(CORE, total=1)]) == {
        CORE: AMOUNT_MAX
    }


def test_no_device_is_an_amount_of_nothing():
    assert count(Inventory(), ALL_HEALTHY, [Amount(CORE, per_device=100)]) == {CORE: 0}


def test_what_is_right_is_left_alone():
    posted = _posted({"a/x": "1k"}, {"a/x": "me"})
    assert needed_change({"a/x": 1000}, posted, "me") == AmountChange({}, (), ("a/x",), {})


def test_what_was_reset_is_set_again():
    assert needed_change({"a/x": 8}, _posted({"a/x": "0"}, {"a/x": "me"}), "me").put == {"a/x": 8}
    assert needed_change({"a/x": 8}, Posted({"a/x": "8"}, {"a/x": "0"}, {"a/x": "me"}), "me").put == {"a/x": 8}
    assert needed_change({"a/x": 8}, _posted({}), "me").put == {"a/x": 8}
    assert needed_change({"a/x": 8}, _posted({"a/x": "rubbish"}, {"a/x": "me"}), "me").put == {"a/x": 8}


def test_what_is_wanted_no_more_goes_if_it_is_ours():
    posted = _posted({"a/x": "8", "a/y": "8", "a/z": "8"}, {"a/x": "me", "a/y": "other"})
    assert needed_change({}, posted, "me") == AmountChange({}, ("a/x",), (), {})


def test_the_amounts_of_others_are_refused():
    posted = _posted({"nvidia.com/gpu": "8", "a/y": "3"}, {"a/y": "other"})
    change = needed_change({"nvidia.com/gpu": 1, "a/y": 1}, posted, "me")
    assert change.empty
    assert "it is 8 already" in change.refused["nvidia.com/gpu"]
    assert "'other' keeps it" in change.refused["a/y"]
    assert needed_change({"a/y": 1}, posted, "me", frozenset({"a/y"})).put == {"a/y": 1}


def test_a_zero_that_nobody_signed_for_may_be_taken():
    assert needed_change({"a/x": 8}, _posted({"a/x": "0"}), "me").put == {"a/x": 8}


def test_a_change_by_hand_keeps_what_was_set_by_hand_before():
    posted = _posted({"a/x": "1", "a/y": "2", "a/z": "3"}, {"a/x": "me", "a/y": "me", "a/z": "other", "a/gone": "me"})
    assert amended(posted, "me", {"a/new": 5}, ("a/y",)) == {"a/x": 1, "a/new": 5}


_names = st.sampled_from(["a/x", "a/y", "a/z", "b/x"])
_amounts = st.dictionaries(_names, st.integers(0, 3))


@given(_amounts, _amounts, st.dictionaries(_names, st.sampled_from(["me", "other"])))
def test_after_a_plan_nothing_is_left_to_do_and_others_keep_theirs(
    wanted: dict[str, int], present: dict[str, int], owners: dict[str, str]
):
    posted = _posted({name: str(number) for name, number in present.items()}, owners)
    change = needed_change(wanted, posted, "me")
    amounts = {**posted.capacity, **{name: str(number) for name, number in change.put.items()}}
    for name in change.drop:
        amounts.pop(name, None)
    signed = {name: who for name, who in owners.items() if who != "me"} | dict.fromkeys(change.signed, "me")
    after = _posted(amounts, signed)
    assert needed_change(wanted, after, "me").empty
    assert all(after.amount(name) == wanted[name] for name in wanted.keys() - change.refused.keys())
    theirs = [name for name in present if owners.get(name) == "other" or (name not in owners and present[name])]
    assert all(after.capacity[name] == posted.capacity[name] for name in theirs)
