"""What the kubelet shows afterwards: who has what in truth, whose promises are exchanged, and what stays wrong."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace
from tests.unit.policy.scheduled.pods import ASSIGN, ROOM, A, B, C, give, match, order, pod, read, slots

from fairlead.model.names import DeviceId, SlotId
from fairlead.model.pod import Pod
from fairlead.policy.scheduled.allocations import Allocations, Draft
from fairlead.policy.scheduled.match import Match
from fairlead.policy.scheduled.pending import PendingPod
from fairlead.policy.scheduled.reconcile import GRACE_S, Outcome, reconcile

DEVICE_OF = {SlotId(f"{card}-{n}"): device for card, device in enumerate((A, B, C)) for n in range(8)}


def look(
    allocations: Allocations,
    pending_pods: list[PendingPod],
    held: Mapping[str, frozenset[SlotId]],
    *,
    now_s: float = 1.0,
    grace_s: float = GRACE_S,
    room: Mapping[DeviceId, int] = ROOM,
    keep: bool = False,
) -> Outcome:
    """`held`: by pod and container, such as a/main0."""
    named = {("default", *key.split("/")): mine for key, mine in held.items()}
    return reconcile(allocations, pending_pods, named, DEVICE_OF, room, now_s, grace_s, keep=keep)  # type: ignore[arg-type]  # two words each


def promises(outcome: Outcome) -> dict[str, tuple[DeviceId, ...]]:
    return {promise.pending.uid: promise.devices for promise in outcome.reassigned}


def done(outcome: Outcome) -> list[str]:
    return [pending.uid for pending in outcome.done]


def pods(*amounts: int) -> list[PendingPod]:
    """Pods a, b, c on the cards 0, 1, 2."""
    return order(*(pod(name, n, card=str(i), time=i) for i, (name, n) in enumerate(zip("abc", amounts, strict=False))))


def test_a_pod_that_has_what_it_was_promised_is_done():
    pending_pods, allocations = pods(4), Draft()
    give(allocations, "a", "main0", A, slots(0, 0, 1, 2, 3))
    outcome = look(allocations, pending_pods, {"a/main0": slots(0, 0, 1, 2, 3)})
    assert (done(outcome), outcome.reassigned, outcome.wrong) == (["a"], (), ())
    assert not outcome.allocations.unconfirmed


def test_two_pods_that_have_each_others_cards_exchange_their_promises():
    pending_pods, allocations = pods(4, 4), Draft()
    give(allocations, "a", "main0", A, slots(0, 0, 1, 2, 3))
    give(allocations, "b", "main0", B, slots(1, 0, 1, 2, 3))
    outcome = look(allocations, pending_pods, {"b/main0": slots(0, 0, 1, 2, 3), "a/main0": slots(1, 0, 1, 2, 3)})
    assert promises(outcome) == {"a": (B,), "b": (A,)}
    assert [promise.partner for promise in outcome.reassigned] == ["default/b", "default/a"]
    assert sorted(pending.uid for pending, _ in outcome.mistaken) == ["a", "b"]


def test_a_ring_of_three_is_exchanged_as_well():
    pending_pods, allocations = pods(8, 8, 8), Draft()
    for name, (card, device) in zip("abc", enumerate((A, B, C)), strict=True):
        give(allocations, name, "main0", device, slots(card, *range(8)))
    held = {"b/main0": slots(0, *range(8)), "c/main0": slots(1, *range(8)), "a/main0": slots(2, *range(8))}
    outcome = look(allocations, pending_pods, held)
    assert promises(outcome) == {"a": (C,), "b": (A,), "c": (B,)}
    assert outcome.wrong == ()


def test_an_init_container_on_another_card_is_wrong_and_not_rewritten_for_ever():
    """Annotations that number the containers cannot say it: read again, they would be what they were."""
    pending_pods = order(pod("a", 4, card="1", init=[4], each='{"0":{"1":4}}'))
    allocations = Draft()
    give(allocations, "a", "init0", A, slots(1, 0, 1, 2, 3), init=True)
    give(allocations, "a", "main0", B, slots(1, 0, 1, 2, 3))
    outcome = look(allocations, pending_pods, {"a/main0": slots(1, 0, 1, 2, 3)})
    assert outcome.reassigned == ()
    assert [(each.pending.uid, each.devices) for each in outcome.wrong] == [("a", (A, B))]


def test_one_that_has_nothing_yet_is_promised_what_is_left():
    pending_pods, allocations = pods(8, 8), Draft()
    give(allocations, "a", "main0", A, slots(0, *range(8)))
    outcome = look(allocations, pending_pods, {"b/main0": slots(0, *range(8))})
    assert promises(outcome) == {"a": (B,), "b": (A,)}


def test_pods_of_other_amounts_make_room_if_they_can():
    pending_pods = order(pod("a", 4, card="0", time=1), pod("b", 4, 4, card="1", time=2))
    allocations = Draft()
    give(allocations, "b", "main0", A, slots(0, 0, 1, 2, 3))
    give(allocations, "b", "main1", A, slots(0, 4, 5, 6, 7))
    held = {"b/main0": slots(0, 0, 1, 2, 3), "b/main1": slots(0, 4, 5, 6, 7)}
    assert promises(look(allocations, pending_pods, held)) == {"a": (B,), "b": (A,)}
    # They cannot where the other card is too small: then it is wrong, and told.
    outcome = look(allocations, pending_pods, held, room={A: 8, B: 3, C: 8})
    assert (promises(outcome), [wrong.pending.uid for wrong in outcome.wrong]) == ({}, ["b"])


def test_whoever_it_was_meant_for_is_gone():
    pending_pods, allocations = pods(4, 4), Draft()
    give(allocations, "a", "main0", A, slots(0, 0, 1, 2, 3))
    outcome = look(allocations, pending_pods[1:], {"b/main0": slots(0, 0, 1, 2, 3)})
    assert promises(outcome) == {"b": (A,)}


def test_containers_of_one_pod_on_two_cards_are_wrong():
    pending_pods, allocations = order(pod("a", 4, 4)), Draft()
    give(allocations, "a", "main0", A, slots(0, 0, 1, 2, 3))
    give(allocations, "a", "main1", B, slots(1, 0, 1, 2, 3))
    held = {"a/main0": slots(0, 0, 1, 2, 3), "a/main1": slots(1, 0, 1, 2, 3)}
    (wrong,) = look(allocations, pending_pods, held).wrong
    assert wrong.devices == (A, B)


def test_a_marked_pod_that_was_given_anothers_card_is_put_right_too():
    """A kubelet that lost its books asks anew for pods that run."""
    pending_pods, allocations = order(pod("a", 4, assigned="true"), pod("b", 4, card="1", time=1)), Draft()
    give(allocations, "b", "main0", B, slots(1, 0, 1, 2, 3))
    outcome = look(allocations, pending_pods, {"a/main0": slots(1, 0, 1, 2, 3)})
    assert promises(outcome) == {"a": (B,), "b": (A,)}
    assert outcome.done == ()


def test_what_is_given_to_one_that_has_other_slots_is_for_the_one_whose_slots_it_has():
    """b came first and was taken for a. Of the answer to a, given to b, the kubelet knows nothing yet."""
    pending_pods, allocations = pods(4, 4), Draft()
    give(allocations, "a", "main0", A, slots(0, 0, 1, 2, 3))
    give(allocations, "b", "main0", B, slots(1, 0, 1, 2, 3))
    outcome = look(allocations, pending_pods, {"b/main0": slots(0, 0, 1, 2, 3)})
    assert (outcome.allocations.load(A), outcome.allocations.load(B)) == (4, 4)
    allocation = outcome.allocations.get(("a", "main0"))
    assert allocation is not None
    assert (allocation.devices, allocation.confirmed) == ((B,), False)
    assert outcome.allocations.latest == "a"


def test_what_is_under_way_is_kept_though_the_pod_it_was_taken_for_has_other_slots():
    """a has what it was given first. What it was thought to be given next is for a pod that is not known yet."""
    for init in (False, True):
        pending_pods = order(pod("a", 4, init=[4] if init else []))
        allocations = Draft()
        give(allocations, "a", "init0" if init else "main0", B, slots(1, 0, 1, 2, 3), init=init)
        outcome = look(allocations, pending_pods, {"a/main0": slots(0, 0, 1, 2, 3)}, grace_s=0.0)
        assert (outcome.allocations.load(A), outcome.allocations.load(B)) == (4, 4)
        assert [found.uid for found in outcome.allocations if found.devices == (B,)] == [outcome.allocations.latest]
        new = order(pod("a", 4), pod("new", 4, init=[4], card="2", time=9))
        found = match(new, outcome.allocations, 4, sorted(slots(1, 0, 1, 2, 3)))
        assert isinstance(found, Match)
        assert (found.pending.uid, found.request.container, found.request.devices) == ("new", "main0", (B,))


def test_all_init_containers_go_to_the_pod_that_uses_slots_of_one_of_them():
    """b was taken for a. Its main container uses none of the slots of its first init container."""
    pending_pods = order(pod("a", 4, init=[2, 6]), pod("b", 4, init=[2, 6], card="1", time=1))
    allocations = Draft()
    give(allocations, "a", "init0", A, slots(0, 0, 1), init=True)
    give(allocations, "a", "init1", A, slots(0, *range(6)), init=True)
    give(allocations, "a", "main0", A, slots(0, 2, 3, 4, 5))
    outcome = look(allocations, pending_pods, {"b/main0": slots(0, 2, 3, 4, 5)})
    assert {found.key for found in outcome.allocations} == {("b", "main0"), ("b", "init0"), ("b", "init1")}
    assert promises(outcome) == {"a": (B,), "b": (A,)}


def test_no_pod_that_waits_is_assigned_a_card_that_is_full_or_may_be():
    """a has b's card, and b waits. Card 0, which a leaves, is taken by pods that nothing is known of."""
    for maybe in ((), (A,)):
        pending_pods, allocations = pods(4, 4), Draft()
        give(allocations, "x", "main0", C if maybe else A, slots(0, 0, 1, 2, 3, 4))
        allocations.add(replace(next(iter(allocations)), maybe=maybe, confirmed=True))
        give(allocations, "a", "main0", B, slots(1, 0, 1, 2, 3))
        held = {"a/main0": slots(1, 0, 1, 2, 3), "x/main0": slots(0, 0, 1, 2, 3, 4)}
        assert promises(look(allocations, pending_pods, held)) == {"a": (B,)}


# --- What is not shown ------------------------------------------------------------------------------------------------


def test_an_admission_that_is_not_seen_in_time_has_failed():
    pending_pods, allocations = pods(4), Draft()
    give(allocations, "a", "main0", A, slots(0, 0, 1, 2, 3))
    assert len(look(allocations, pending_pods, {}).allocations) == 1
    late = look(allocations, pending_pods, {}, now_s=GRACE_S + 1)
    assert (len(late.allocations), [allocation.uid for allocation in late.lost]) == (0, ["a"])


def test_with_the_next_question_all_but_the_latest_admission_is_over():
    pending_pods, allocations = pods(4, 4), Draft()
    give(allocations, "a", "main0", A, slots(0, 0, 1, 2, 3))
    give(allocations, "b", "main0", B, slots(1, 0, 1, 2, 3))
    outcome = look(allocations, pending_pods, {}, grace_s=0.0)
    assert [allocation.uid for allocation in outcome.lost] == ["a"]


def test_what_was_confirmed_counts_until_the_pod_ends():
    """A kubelet that has just been started shows nothing yet, and one that lost its books never will."""
    one = pod("a", 4)
    allocations = Draft()
    give(allocations, "a", "main0", A, slots(0, 0, 1, 2, 3), confirmed=True)
    assert look(allocations, [read(one)], {}, now_s=99.0).allocations.load(A) == 4
    assert look(allocations, [read(replace(one, deleting=True))], {}).allocations.load(A) == 0
    assert look(allocations, [], {}).allocations.load(A) == 0


def test_a_pod_that_the_api_server_forgot_keeps_its_card_while_its_containers_run():
    allocations = Draft()
    give(allocations, "a", "main0", A, slots(0, 0, 1, 2, 3), confirmed=True)
    outcome = look(allocations, [], {"a/main0": slots(0, 0, 1, 2, 3)})
    assert outcome.strangers == (("default", "a", "main0"),)
    assert outcome.allocations.load(A) == 4
    # A daemon that knows nothing of it counts its slots.
    assert look(Draft(), [], {"a/main0": slots(0, 0, 1, 2, 3)}).allocations.load(A) == 4


def test_a_pod_of_the_same_name_does_not_inherit():
    """Deleted by force, and made anew: the old containers still run, and the kubelet shows names only."""
    allocations = Draft()
    give(allocations, "old", "main0", A, slots(0, 0, 1, 2, 3), confirmed=True)
    new = read(replace(pod("a", 4, card="1"), uid="new"))
    outcome = look(allocations, [new], {"a/main0": slots(0, 0, 1, 2, 3)})
    assert (outcome.done, outcome.reassigned, outcome.allocations.load(A)) == ((), (), 4)
    assert new.next(outcome.allocations) is not None
    # And once the new one is admitted, each has its own.
    give(allocations, "new", "main0", B, slots(1, 0, 1, 2, 3))
    outcome = look(allocations, [new], {"a/main0": slots(0, 0, 1, 2, 3) | slots(1, 0, 1, 2, 3)})
    assert done(outcome) == ["new"]
    assert (outcome.allocations.load(A), outcome.allocations.load(B)) == (4, 4)


# --- A daemon that was started anew -----------------------------------------------------------------------------------


def test_a_marked_pod_was_told_what_it_says():
    """By another plugin, which does not look at ids."""
    outcome = look(Draft(), order(pod("a", 4, assigned="true")), {"a/main0": slots(1, 0, 1, 2, 3)})
    assert (outcome.allocations.load(A), outcome.allocations.load(B)) == (4, 0)
    assert (outcome.reassigned, outcome.done, outcome.wrong, outcome.unknown) == ((), (), (), ())


def test_an_unmarked_pod_has_what_its_slots_say_if_there_is_a_pod_that_it_was_taken_for():
    pending_pods = order(pod("a", 4, card="0"), pod("b", 4, card="1", time=1))
    outcome = look(Draft(), pending_pods, {"a/main0": slots(1, 0, 1, 2, 3)})
    assert (outcome.allocations.load(A), outcome.allocations.load(B)) == (0, 4)
    assert promises(outcome) == {"a": (B,), "b": (A,)}


def test_what_an_unmarked_pod_has_is_not_known_if_ids_and_annotation_differ():
    """Killed between Allocate and the mark: nothing says whether slots were lacking, or another pod was meant."""
    held = {"a/main0": slots(1, 0, 1, 2, 3)}
    outcome = look(Draft(), order(pod("a", 4)), held)
    assert (outcome.allocations.load(A), outcome.allocations.load(B)) == (4, 4)
    assert (outcome.reassigned, outcome.done) == ((), ())
    assert [(each.pending.uid, each.devices) for each in outcome.unknown] == [("a", (B,))]
    # It stays so, until an annotation says it.
    again = look(outcome.allocations, order(pod("a", 4)), held)
    assert (again.allocations.load(A), again.allocations.load(B)) == (4, 4)
    known = look(outcome.allocations, order(pod("a", 4, assigned="true")), held)
    assert (known.allocations.load(A), known.allocations.load(B), known.unknown) == (4, 0, ())


def test_where_another_plugin_gave_ids_away_they_do_not_say_what_strangers_and_unmarked_pods_have():
    pending_pods = order(pod("old", 4, assigned="true"), pod("a", 4), pod("b", 4, card="1", time=1))
    held = {"old/main0": slots(1, 0, 1, 2, 3), "a/main0": slots(1, 4, 5, 6, 7), "gone/main0": slots(2, 0, 1)}
    outcome = look(Draft(), pending_pods, held)
    assert [outcome.allocations.load(device) for device in (A, B, C)] == [4 + 4 + 2, 4 + 2, 4 + 2]
    assert [each.pending.uid for each in outcome.unknown] == ["a"]
    assert outcome.strangers == (("default", "gone", "main0"),)
    # Their end proves nothing, and neither does a pod that comes later.
    later = look(outcome.allocations, order(pod("a", 4), pod("c", 4, card="1", time=2)), {"a/main0": held["a/main0"]})
    assert [later.allocations.load(device) for device in (A, B, C)] == [4, 4, 4]
    assert [each.pending.uid for each in later.unknown] == ["a"]


def test_where_the_kubelet_chose_ids_of_several_devices_they_do_not_say_which_one_it_is():
    outcome = look(Draft(), order(pod("a", 4)), {"a/main0": slots(1, 0, 1) | slots(0, 0, 1)})
    assert [outcome.allocations.load(device) for device in (A, B, C)] == [4, 4, 4]


# --- A scheduler that counts by what it wrote -------------------------------------------------------------------------

KEEP = replace(ASSIGN, actual="actual")


def test_its_promises_are_never_rewritten_and_what_is_not_kept_is_wrong():
    pending_pods, allocations = pods(4, 4), Draft()
    give(allocations, "a", "main0", A, slots(0, 0, 1, 2, 3))
    give(allocations, "b", "main0", B, slots(1, 0, 1, 2, 3))
    held = {"b/main0": slots(0, 0, 1, 2, 3), "a/main0": slots(1, 0, 1, 2, 3)}
    outcome = look(allocations, pending_pods, held, keep=True)
    assert (outcome.reassigned, outcome.done) == ((), ())
    assert {each.pending.uid: each.devices for each in outcome.wrong} == {"a": (B,), "b": (A,)}
    assert (outcome.allocations.load(A), outcome.allocations.load(B)) == (4, 4)


def test_what_was_written_about_a_pod_that_is_astray_is_known_to_the_next_daemon():
    one = read(pod("a", 4, assigned="true", actual='{"main0":{"1":4}}'), KEEP)
    outcome = look(Draft(), [one], {"a/main0": slots(1, 0, 1, 2, 3)}, keep=True)
    assert (outcome.allocations.load(A), outcome.allocations.load(B)) == (0, 4)
    assert [each.pending.uid for each in outcome.wrong] == ["a"]


def test_a_pod_that_was_promised_nothing_and_has_a_device_is_wrong():
    allocations = Draft()
    give(allocations, "b", "main0", B, slots(1, 0, 1, 2, 3))
    pending_pods = order(pod("f", 4, card="7"), pod("b", 4, card="1", time=1))
    outcome = look(allocations, pending_pods, {"f/main0": slots(1, 0, 1, 2, 3)})
    assert [(each.pending.uid, each.devices) for each in outcome.wrong] == [("f", (B,))]
    # A node with one device has no other that it could have meant.
    only = look(Draft(), order(pod("f", 4, card="")), {"f/main0": slots(0, 0, 1, 2, 3)}, room={A: 8})
    assert (only.wrong, only.unknown) == ((), ())


def test_what_was_given_to_a_pod_that_was_gone_is_kept_for_the_one_that_goes_on():
    allocations = Draft()
    give(allocations, "gone", "init0", A, slots(0, 0, 1, 2, 3), init=True)
    outcome = look(allocations, order(pod("p", 4, init=[4])), {}, grace_s=0.0)
    assert [allocation.uid for allocation in outcome.allocations] == ["gone"]
    assert len(look(allocations, order(pod("p", 4, init=[4])), {}, now_s=GRACE_S + 1).allocations) == 0


def test_an_init_container_of_an_earlier_daemon_is_no_reason_to_wait():
    outcome = look(Draft(), order(pod("a", 4, init=[4])), {"a/main0": slots(0, 0, 1, 2, 3)})
    assert done(outcome) == ["a"]


# --- Init containers, which the kubelet does not show -----------------------------------------------------------------


def warm(name: str, card: str, phase: str = "Pending") -> Pod:
    return replace(pod(name, init=[4], card=card), phase=phase)


def test_a_pod_with_init_containers_only_is_done_when_it_runs_or_after_a_while():
    allocations = Draft()
    give(allocations, "a", "init0", A, slots(0, 0, 1, 2, 3), init=True)
    assert done(look(allocations, [read(warm("a", "0"))], {})) == []
    outcome = look(allocations, [read(warm("a", "0"))], {}, now_s=GRACE_S + 1)
    assert (done(outcome), outcome.allocations.unconfirmed) == (["a"], False)
    assert done(look(allocations, [read(warm("a", "0", "Running"))], {})) == ["a"]


def test_who_uses_the_slots_of_an_init_container_again_is_its_pod():
    pending_pods = order(pod("a", 4, init=[4], card="0", time=1), pod("b", 4, init=[4], card="1", time=2))
    allocations = Draft()
    give(allocations, "a", "init0", A, slots(0, 0, 1, 2, 3), init=True)
    give(allocations, "a", "main0", A, slots(0, 0, 1, 2, 3))
    outcome = look(allocations, pending_pods, {"b/main0": slots(0, 0, 1, 2, 3)})
    assert {allocation.key for allocation in outcome.allocations} == {("b", "init0"), ("b", "main0")}
    assert promises(outcome) == {"a": (B,), "b": (A,)}
    plain = order(pod("a", 4, init=[4], card="0", time=1), pod("b", 4, card="1", time=2))
    assert {
        allocation.key for allocation in look(allocations, plain, {"b/main0": slots(0, 0, 1, 2, 3)}).allocations
    } == {("b", "main0")}
