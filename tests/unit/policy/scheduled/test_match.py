"""Which pod a question of the kubelet is for, which device it was promised, and whether that has room."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace
from tests.unit.policy.scheduled.pods import ASSIGN, NAMES, ROOM, A, B, C, give, match, order, pod, read, slots

from fairlead.model.assign import Assign
from fairlead.model.names import DeviceId, SlotId
from fairlead.model.resource import Slot
from fairlead.policy.pods.annotations import Form
from fairlead.policy.pods.requests import ContainerRequest
from fairlead.policy.scheduled.allocations import Allocation, Draft
from fairlead.policy.scheduled.match import Match, Miss, choose_slots
from fairlead.policy.scheduled.pending import write_actual, write_assignment

WORDS = {device: word for word, device in NAMES.items()}


def served(found: Match | Miss) -> tuple[str, str, tuple[DeviceId, ...]]:
    assert isinstance(found, Match), found
    return found.pending.uid, found.request.container, found.request.devices


# --- Which pod --------------------------------------------------------------------------------------------------------


def test_of_those_that_came_together_the_older_pod_first_then_the_oldest_promise_then_the_name():
    """The kubelet sorts pods that it learns of together by their creation, which has no parts of a second."""
    pods = [pod("late", 4, time=9), pod("early", 4, time=3, card="1"), pod("none", 4, time=9)]
    pods.append(replace(pods[0], uid="old", name="old", created_s=-1.0))
    assert [pending.uid for pending in order(*pods)] == ["old", "early", "late", "none"]
    found = match(order(*pods), Draft(), 4)
    assert served(found) == ("old", "main0", (A,))
    assert isinstance(found, Match)
    assert [rival.uid for rival in found.rivals] == ["early"]


def test_a_pod_that_came_to_the_node_earlier_goes_before_an_older_promise():
    """The kubelet hears of them in the same order, and admits them so."""
    late, early = pod("late", 4, time=3), pod("early", 4, time=9, card="1")
    pending_pods = order(replace(late, arrived=2), replace(early, arrived=1))
    assert served(match(pending_pods, Draft(), 4)) == ("early", "main0", (B,))


def test_a_time_that_cannot_be_read_comes_after_any_that_can():
    odd = replace(pod("odd", 4), annotations={"card": "0", "time": "soon"})
    far = replace(pod("far", 4), annotations={"card": "1", "time": "9" * 20})
    assert [pending.uid for pending in order(odd, far)] == ["far", "odd"]


def test_amounts_count_by_container_and_in_their_order():
    pending_pods = order(pod("two", 3, 4, time=1), pod("one", 4, card="1", time=2))
    allocations = Draft()
    assert served(match(pending_pods, allocations, 4))[0] == "one"
    assert served(match(pending_pods, allocations, 3)) == ("two", "main0", (A,))
    give(allocations, "two", "main0", A, slots(0, 0, 1, 2))
    # Its admission is under way: it goes before older promises.
    assert served(match(pending_pods, allocations, 4)) == ("two", "main1", (A,))


def test_an_init_container_leaves_its_slots_to_the_next():
    pending_pods = order(pod("other", 4, card="1", time=1), pod("warm", 4, init=[6], time=2))
    allocations = Draft()
    give(allocations, "warm", "init0", A, slots(0, *range(6)), init=True)
    assert served(match(pending_pods, allocations, 4, sorted(slots(0, 1, 2, 3, 5)))) == ("warm", "main0", (A,))
    # Who does not use them again is another pod.
    assert served(match(pending_pods, allocations, 4))[0] == "other"


def test_a_full_card_is_passed_over_for_one_with_room_and_told_if_there_is_none():
    pending_pods = order(pod("full", 4, time=1), pod("fits", 4, card="1", time=2))
    allocations = Draft()
    give(allocations, "x", "main", A, slots(0, 0, 1, 2, 3, 4), confirmed=True)
    assert served(match(pending_pods, allocations, 4, room=ROOM))[0] == "fits"
    miss = match(pending_pods[:1], allocations, 4, room=ROOM)
    assert miss == Miss("default/full: 4 units do not fit: GPU-a has 8, and pods hold 5 of them", uid="full")


def test_what_init_containers_had_stays_their_pods_and_counts_once():
    allocations = Draft()
    give(allocations, "warm", "init0", A, slots(0, *range(6)), init=True)
    warm = order(pod("warm", 6, init=[6]))
    assert allocations.load(A) == 6
    assert served(match(warm, allocations, 6, sorted(slots(0, *range(6))), ROOM))[1] == "main0"
    give(allocations, "warm", "main0", A, slots(0, *range(6)))
    assert (allocations.load(A), allocations.reusable("warm", A)) == (6, 0)
    allocations.drop(("warm", "main0"))
    assert allocations.holder(SlotId("0-1")) == allocations.get(("warm", "init0"))
    small = order(pod("small", 4))
    assert isinstance(match(small, allocations, 4, room=ROOM), Miss)


def test_a_pod_that_has_begun_like_another_is_found_by_its_next_question():
    pending_pods = order(pod("short", 3, time=1), pod("long", 3, 5, card="1", time=2))
    allocations = Draft()
    give(allocations, "short", "main0", A, slots(0, 0, 1, 2))
    found = match(pending_pods, allocations, 5, room=ROOM)
    assert served(found) == ("long", "main1", (A,))  # where its first container is
    assert isinstance(found, Match)
    assert [allocation.key for allocation in found.moved] == [("long", "main0")]
    assert found.left == "short"
    # But not if that is known to be the other's.
    give(allocations, "short", "main0", A, slots(0, 0, 1, 2), confirmed=True)
    assert isinstance(match(pending_pods, allocations, 5, room=ROOM), Miss)


def test_slots_of_a_moment_ago_were_those_of_an_init_container():
    pending_pods = order(pod("plain", 4, time=1), pod("warm", 2, init=[4], card="1", time=2), pod("two", 2, time=3))
    allocations = Draft()
    give(allocations, "plain", "main0", A, slots(0, 0, 1, 2, 3))
    assert served(match(pending_pods, allocations, 2, sorted(slots(0, 1, 2)))) == ("warm", "main0", (A,))
    # Nobody like that: it is no matter of a guess.
    assert isinstance(match([pending_pods[0], pending_pods[2]], allocations, 2, sorted(slots(0, 1, 2))), Miss)


def test_a_kubelet_that_forgot_asks_again():
    pending_pods = order(pod("only", 4))
    allocations = Draft()
    give(allocations, "only", "main0", A, slots(0, 0, 1, 2, 3))
    assert isinstance(match(pending_pods, allocations, 4), Miss)  # it has what it asked for
    allocations = allocations.released(slots(0, 2)).draft()
    assert served(match(pending_pods, allocations, 4)) == ("only", "main0", (A,))


FAULTS = {
    "index": ({"card": "7"}, "its annotation card names '7'; this node has 0, 1, 2"),
    "no-index": ({"card": ""}, "its annotation card is not there"),
    "nothing": ({"card": "", "time": ""}, "its annotation card is not there"),
    "each": ({"each": '{"0":{"0":3}}'}, "its annotation each gives container main0 3 units, which asks for 4"),
}


@pytest.mark.parametrize(("texts", "reason"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_pod_is_refused_and_the_next_one_is_served_what_it_was_promised(texts: Mapping[str, str], reason: str):
    broken = replace(pod("broken", 4), annotations={k: v for k, v in texts.items() if v})
    pending_pods = order(broken, replace(pod("good", 4, card="1"), arrived=1))
    assert [pending.uid for pending in pending_pods] == ["broken", "good"]
    miss = match(pending_pods, Draft(), 4, room=ROOM)
    assert isinstance(miss, Miss)
    assert (miss.uid, miss.reason) == ("broken", f"default/broken: {reason}")
    # The kubelet has failed it. The API server may say so later.
    assert served(match(pending_pods, Draft(), 4, room=ROOM, refused={"broken"})) == ("good", "main0", (B,))


def test_a_pod_that_was_refused_and_still_waits_is_served_where_no_other_asks():
    """A kubelet that was killed asks for a pod that has ended; that question was taken for this pod's."""
    pending_pods = order(pod("waits", 4), replace(pod("later", 4, card="1"), arrived=1))
    assert served(match(pending_pods, Draft(), 4, room=ROOM, refused={"waits"}))[0] == "later"
    found = match(pending_pods[:1], Draft(), 4, room=ROOM, refused={"waits"})
    assert served(found) == ("waits", "main0", (A,))
    assert isinstance(found, Match)
    assert found.again, "the pods are read first: it may have failed in truth"
    faulty = order(replace(pod("faulty", 4), annotations={}))
    assert isinstance(match(faulty, Draft(), 4, room=ROOM, refused={"faulty"}), Miss)


def test_what_comes_after_the_bind_is_waited_for_and_what_comes_before_it_is_not():
    late = Assign(device="card", time="time", needs=("port",))
    assert match([read(pod("p", 4), late)], Draft(), 4) == Miss("default/p: its annotation port is not there", uid="p")
    for after_bind in (True, False):
        pending = read(pod("p", 4, card=""), replace(late, needs=(), after_bind=after_bind))
        miss = match([pending], Draft(), 4)
        assert miss == Miss("default/p: its annotation card is not there", later=after_bind, uid="p")
    broken = read(pod("broken", 4, card="7"), late)
    miss = match([broken], Draft(), 4)
    told = "default/broken: its annotation card names '7'; this node has 0, 1, 2"
    assert miss == Miss(told, later=False, uid="broken")


def test_a_pod_without_room_because_of_one_that_is_astray_gets_what_that_one_was_promised():
    """Its scheduler counts by what it wrote. There, the device is free."""
    pending_pods = order(pod("misplaced", 6, card="1", assigned="true"), pod("p", 8, card="0"))
    allocations = Draft()
    give(allocations, "misplaced", "main0", A, slots(0, *range(6)), confirmed=True)
    assert isinstance(match(pending_pods, allocations, 8, room=ROOM), Miss)
    assert served(match(pending_pods, allocations, 8, room=ROOM, keep=True)) == ("p", "main0", (B,))
    # Not what somebody else was promised.
    other = order(*(pending.pod for pending in pending_pods), pod("other", 2, card="1"))
    assert isinstance(match(other, allocations, 8, room=ROOM, keep=True), Miss)
    # And not where the device is full of pods that are where they should be.
    right = order(pod("right", 6, card="0", assigned="true"), pod("p", 8, card="0"))
    allocations = Draft()
    give(allocations, "right", "main0", A, slots(0, *range(6)), confirmed=True)
    assert isinstance(match(right, allocations, 8, room=ROOM, keep=True), Miss)


def test_nobody_asks_and_who_asks_for_what():
    assert match([], Draft(), 4) == Miss("no pod asks for 4", unseen=True)
    assert match(order(pod("p", 3)), Draft(), 4) == Miss("no pod asks for 4; default/p asks for 3", unseen=True)


def test_pods_that_are_served_are_not_named():
    pending_pods = order(pod("marked", 4, assigned="true"), pod("has", 4), pod("asks", 3))
    allocations = Draft()
    give(allocations, "has", "main0", A, slots(0, 0, 1, 2, 3))
    assert match(pending_pods, allocations, 4) == Miss("no pod asks for 4; default/asks asks for 3", unseen=True)


def test_a_pod_whose_last_container_has_its_slots_asks_for_no_init_container():
    """An earlier daemon served that one, and the kubelet does not list it."""
    allocations = Draft()
    give(allocations, "p", "main0", A, slots(0, 0, 1), confirmed=True)
    assert isinstance(match(order(pod("p", 2, init=[4])), allocations, 4), Miss)


@pytest.mark.parametrize(
    ("changes", "served"),
    [({"deleting": True}, False), ({"phase": "Running"}, False), ({}, True)],
    ids=["deleting", "running", "pending"],
)
def test_pods_that_are_not_admitted_any_more_are_not_meant(changes: Mapping[str, object], served: bool):
    assert isinstance(match(order(replace(pod("p", 4), **changes)), Draft(), 4), Match) is served


def test_a_pod_that_is_marked_is_not_meant():
    assert isinstance(match(order(pod("p", 4, assigned="true")), Draft(), 4), Miss)
    strict = replace(ASSIGN, unassigned=frozenset({"false"}))
    pending = read(pod("p", 4), strict)
    assert pending.fault is not None
    assert pending.fault.text == "its annotation assigned is not there"


# --- Which devices ----------------------------------------------------------------------------------------------------


def test_each_container_its_own_device():
    one = pod("p", 2, 3, init=[1], each=json.dumps({"0": {"1": 2}, "1": {"2": 3}}))
    pending = read(one)
    assert (pending.assigned, pending.form) == (((B,), (B,), (C,)), Form.EACH)
    texts = write_assignment(pending, ((C,), (C,), (B,)), ASSIGN, WORDS)
    assert texts == {"each": '{"0":{"2":2},"1":{"1":3}}', "card": "2,1"}
    assert read(replace(one, annotations={**one.annotations, **texts})).assigned == ((C,), (C,), (B,))


def test_units_are_split_as_written():
    pending = read(pod("p", 4, each='{"0":{"0":3,"1":1}}'))
    (request,) = pending.requests
    assert (request.devices, request.parts, pending.fault) == ((A, B), (3, 1), None)
    assert pending.footprint(pending.assigned) == {A: 3, B: 1}
    free = {slot.id for mine in SLOTS_OF.values() for slot in mine}
    assert choose_slots(request, SLOTS_OF, free, [], strict=True) == ("0-0", "0-1", "0-2", "1-0")
    allocations = Draft(
        [Allocation("p", "main0", slots(0, 0, 1, 2) | slots(1, 0), request.devices, 0.0, parts=request.parts)]
    )
    assert (allocations.load(A), allocations.load(B)) == (3, 1)
    full = Draft([Allocation("x", "main", slots(1, *range(8)), (B,), 0.0)])
    assert isinstance(match([pending], full, 4, room=ROOM), Miss)


@pytest.mark.parametrize("text", ['{"0":{"0":"4"}}', '{"0":{"0":4.0}}', '{"0":{"0":true}}', '{"0":{"0":0,"1":4}}'])
def test_units_that_are_no_amount_are_a_fault(text: str):
    pending = read(pod("p", 4, each=text))
    assert pending.fault is not None
    assert "is not JSON of the form" in pending.fault.text


def test_what_a_pod_has_in_truth_is_written_and_read():
    keep = replace(ASSIGN, actual="actual")
    allocations = [
        Allocation("p", "main0", slots(2, 0, 1, 2), (C,), 0.0),
        Allocation("p", "main1", slots(1, 0, 1), (B,), 0.0),
    ]
    text = write_actual(allocations, WORDS)
    assert text == '{"main0":{"2":3},"main1":{"1":2}}'
    assert read(pod("p", 3, 2, actual=text), keep).actual == {"main0": ((C,), ()), "main1": ((B,), ())}
    for odd in ("", "[", "{}", "[1]", '{"main0":{"7":3}}', '{"main0":{"2":1}}', '{"main0":null}', "[" * 4000):
        assert read(pod("p", 3, 2, actual=odd), keep).actual == {}


def test_a_container_without_a_device_of_its_own():
    pending = read(pod("p", 2, 3, each='{"0":{"1":2}}'))
    assert pending.fault is not None
    assert pending.fault.text == "its annotation each names no device for container main1"


def test_whole_devices_go_to_containers_in_a_row():
    one = pod("p", 2, 1, init=[1], card="2,0,1")
    pending = read(one, whole=True)
    assert (pending.assigned, pending.form) == (((C,), (C, A), (B,)), Form.ROW)
    assert write_assignment(pending, ((A,), (A, B), (C,)), ASSIGN, WORDS) == {"card": "0,1,2"}
    assert write_assignment(pending, ((A,), (B, A), (C,)), ASSIGN, WORDS) is None  # its init container had another
    assert write_assignment(pending, ((A,), (A, B), (A,)), ASSIGN, WORDS) is None
    assert write_assignment(pending, ((A,), (A, B), (DeviceId("gone"),)), ASSIGN, WORDS) is None


@pytest.mark.parametrize(("card", "whole"), [("0,1,2", True), ("0", True), ("0,1,2", False)])
def test_more_devices_than_asked_for_are_not_given(card: str, whole: bool):
    pending = read(pod("greedy", 2, card=card), whole=whole)
    assert pending.fault is not None
    count = len(card.split(","))
    assert pending.fault.text == (
        f"{count} devices are named for container main0, which asks for 2. Name as many as it asks for"
    )


def test_a_promise_of_one_device_has_no_words_for_two():
    pending = read(pod("p", 2, 2))
    assert write_assignment(pending, ((A,), (B,)), ASSIGN, WORDS) is None
    assert write_assignment(pending, ((B,), (B,)), ASSIGN, WORDS) == {"card": "1"}


# --- Which slots ------------------------------------------------------------------------------------------------------

SLOTS_OF = {device: tuple(Slot(SlotId(f"{word}-{n}"), device) for n in range(4)) for word, device in NAMES.items()}
ALL = {slot.id for mine in SLOTS_OF.values() for slot in mine}


def choose(amount: int, *devices: DeviceId, must: Sequence[str] = (), taken: Sequence[str] = (), strict: bool = True):
    request = ContainerRequest("main", amount, devices)
    free = ALL - {SlotId(slot) for slot in taken}
    return choose_slots(request, SLOTS_OF, free, [SlotId(slot) for slot in must], strict=strict)


def test_slots_carry_the_decision():
    assert choose(3, B) == ("1-0", "1-1", "1-2")
    assert choose(3, B, must=["1-3"], taken=["1-0"]) == ("1-3", "1-1", "1-2")
    assert choose(4, B, A) == ("1-0", "1-1", "0-0", "0-1")  # of each its part
    assert choose(4, B, A, must=["0-3"], taken=["1-0", "1-1", "1-2"]) == ("0-3", "1-3", "0-0", "0-1")


def test_slots_of_other_devices_only_in_need_and_unless_strict():
    assert choose(4, B, taken=["1-0"]) == ()
    assert choose(4, B, taken=["1-0"], strict=False) == ("1-1", "1-2", "1-3", "0-0")
    assert choose(13, B, strict=False) == ()
