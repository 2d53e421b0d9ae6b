"""What the kubelet shows afterwards: who has what in truth, whose promises are exchanged, and what stays wrong."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace
from tests.unit.policy.test_assign import ASSIGN, ROOM, A, B, C, give, order, pod, read, slots

from fairlead.model.names import DeviceId, SlotId
from fairlead.model.pod import Pod
from fairlead.policy.claims import Claims
from fairlead.policy.promise import Seeker
from fairlead.policy.reconcile import GRACE_S, Outcome, reconcile

DEVICE_OF = {SlotId(f"{card}-{n}"): device for card, device in enumerate((A, B, C)) for n in range(8)}


def look(
    claims: Claims,
    seekers: list[Seeker],
    held: Mapping[str, frozenset[SlotId]],
    *,
    now_s: float = 1.0,
    grace_s: float = GRACE_S,
    room: Mapping[DeviceId, int] = ROOM,
    keep: bool = False,
) -> Outcome:
    """`held`: by pod and container, such as a/main0."""
    named = {("default", *key.split("/")): mine for key, mine in held.items()}
    return reconcile(claims, seekers, named, DEVICE_OF, room, now_s, grace_s, keep=keep)  # type: ignore[arg-type]  # two words each


def promises(outcome: Outcome) -> dict[str, tuple[DeviceId, ...]]:
    return {promise.seeker.uid: promise.devices for promise in outcome.promises}


def done(outcome: Outcome) -> list[str]:
    return [seeker.uid for seeker in outcome.done]


def pods(*amounts: int) -> list[Seeker]:
    """Pods a, b, c on the cards 0, 1, 2."""
    return order(*(pod(name, n, card=str(i), time=i) for i, (name, n) in enumerate(zip("abc", amounts, strict=False))))


def test_a_pod_that_has_what_it_was_promised_is_done():
    seekers, claims = pods(4), Claims()
    give(claims, "a", "main0", A, slots(0, 0, 1, 2, 3))
    outcome = look(claims, seekers, {"a/main0": slots(0, 0, 1, 2, 3)})
    assert (done(outcome), outcome.promises, outcome.wrong) == (["a"], (), ())
    assert not outcome.claims.unsure


def test_two_pods_that_have_each_others_cards_exchange_their_promises():
    seekers, claims = pods(4, 4), Claims()
    give(claims, "a", "main0", A, slots(0, 0, 1, 2, 3))
    give(claims, "b", "main0", B, slots(1, 0, 1, 2, 3))
    outcome = look(claims, seekers, {"b/main0": slots(0, 0, 1, 2, 3), "a/main0": slots(1, 0, 1, 2, 3)})
    assert promises(outcome) == {"a": (B,), "b": (A,)}
    assert [promise.partner for promise in outcome.promises] == ["default/b", "default/a"]
    assert sorted(seeker.uid for seeker, _ in outcome.mistaken) == ["a", "b"]


def test_a_ring_of_three_is_exchanged_as_well():
    seekers, claims = pods(8, 8, 8), Claims()
    for name, (card, device) in zip("abc", enumerate((A, B, C)), strict=True):
        give(claims, name, "main0", device, slots(card, *range(8)))
    held = {"b/main0": slots(0, *range(8)), "c/main0": slots(1, *range(8)), "a/main0": slots(2, *range(8))}
    outcome = look(claims, seekers, held)
    assert promises(outcome) == {"a": (C,), "b": (A,), "c": (B,)}
    assert outcome.wrong == ()


def test_one_that_has_nothing_yet_is_promised_what_is_left():
    seekers, claims = pods(8, 8), Claims()
    give(claims, "a", "main0", A, slots(0, *range(8)))
    outcome = look(claims, seekers, {"b/main0": slots(0, *range(8))})
    assert promises(outcome) == {"a": (B,), "b": (A,)}


def test_pods_of_other_amounts_make_room_if_they_can():
    seekers = order(pod("a", 4, card="0", time=1), pod("b", 4, 4, card="1", time=2))
    claims = Claims()
    give(claims, "b", "main0", A, slots(0, 0, 1, 2, 3))
    give(claims, "b", "main1", A, slots(0, 4, 5, 6, 7))
    held = {"b/main0": slots(0, 0, 1, 2, 3), "b/main1": slots(0, 4, 5, 6, 7)}
    assert promises(look(claims, seekers, held)) == {"a": (B,), "b": (A,)}
    # They cannot where the other card is too small: then it is wrong, and told.
    outcome = look(claims, seekers, held, room={A: 8, B: 3, C: 8})
    assert (promises(outcome), [wrong.seeker.uid for wrong in outcome.wrong]) == ({}, ["b"])


def test_whoever_it_was_meant_for_is_gone():
    seekers, claims = pods(4, 4), Claims()
    give(claims, "a", "main0", A, slots(0, 0, 1, 2, 3))
    outcome = look(claims, seekers[1:], {"b/main0": slots(0, 0, 1, 2, 3)})
    assert promises(outcome) == {"b": (A,)}


def test_containers_of_one_pod_on_two_cards_are_wrong():
    seekers, claims = order(pod("a", 4, 4)), Claims()
    give(claims, "a", "main0", A, slots(0, 0, 1, 2, 3))
    give(claims, "a", "main1", B, slots(1, 0, 1, 2, 3))
    held = {"a/main0": slots(0, 0, 1, 2, 3), "a/main1": slots(1, 0, 1, 2, 3)}
    (wrong,) = look(claims, seekers, held).wrong
    assert wrong.devices == (A, B)


def test_a_marked_pod_that_was_given_anothers_card_is_put_right_too():
    """A kubelet that lost its books asks anew for pods that run."""
    seekers, claims = order(pod("a", 4, assigned="true"), pod("b", 4, card="1", time=1)), Claims()
    give(claims, "b", "main0", B, slots(1, 0, 1, 2, 3))
    outcome = look(claims, seekers, {"a/main0": slots(1, 0, 1, 2, 3)})
    assert promises(outcome) == {"a": (B,), "b": (A,)}
    assert outcome.done == ()


def test_what_is_given_to_one_that_has_other_slots_is_for_the_one_whose_slots_it_has():
    """b came first and was taken for a. Of the answer to a, given to b, the kubelet knows nothing yet."""
    seekers, claims = pods(4, 4), Claims()
    give(claims, "a", "main0", A, slots(0, 0, 1, 2, 3))
    give(claims, "b", "main0", B, slots(1, 0, 1, 2, 3))
    outcome = look(claims, seekers, {"b/main0": slots(0, 0, 1, 2, 3)})
    assert (outcome.claims.load(A), outcome.claims.load(B)) == (4, 4)
    claim = outcome.claims.get(("a", "main0"))
    assert claim is not None
    assert (claim.devices, claim.sure) == ((B,), False)
    assert outcome.claims.latest == "a"


# --- What is not shown ------------------------------------------------------------------------------------------------


def test_an_admission_that_is_not_seen_in_time_has_failed():
    seekers, claims = pods(4), Claims()
    give(claims, "a", "main0", A, slots(0, 0, 1, 2, 3))
    assert len(look(claims, seekers, {}).claims) == 1
    late = look(claims, seekers, {}, now_s=GRACE_S + 1)
    assert (len(late.claims), [claim.uid for claim in late.lost]) == (0, ["a"])


def test_with_the_next_question_all_but_the_latest_admission_is_over():
    seekers, claims = pods(4, 4), Claims()
    give(claims, "a", "main0", A, slots(0, 0, 1, 2, 3))
    give(claims, "b", "main0", B, slots(1, 0, 1, 2, 3))
    outcome = look(claims, seekers, {}, grace_s=0.0)
    assert [claim.uid for claim in outcome.lost] == ["a"]


def test_what_was_confirmed_counts_until_the_pod_ends():
    """A kubelet that has just been started shows nothing yet, and one that lost its books never will."""
    one = pod("a", 4)
    claims = Claims()
    give(claims, "a", "main0", A, slots(0, 0, 1, 2, 3), sure=True)
    assert look(claims, [read(one)], {}, now_s=99.0).claims.load(A) == 4
    assert look(claims, [read(replace(one, deleting=True))], {}).claims.load(A) == 0
    assert look(claims, [], {}).claims.load(A) == 0


def test_a_pod_that_the_api_server_forgot_keeps_its_card_while_its_containers_run():
    claims = Claims()
    give(claims, "a", "main0", A, slots(0, 0, 1, 2, 3), sure=True)
    outcome = look(claims, [], {"a/main0": slots(0, 0, 1, 2, 3)})
    assert outcome.strangers == (("default", "a", "main0"),)
    assert outcome.claims.load(A) == 4
    # A daemon that knows nothing of it counts its slots.
    assert look(Claims(), [], {"a/main0": slots(0, 0, 1, 2, 3)}).claims.load(A) == 4


def test_a_pod_of_the_same_name_does_not_inherit():
    """Deleted by force, and made anew: the old containers still run, and the kubelet shows names only."""
    claims = Claims()
    give(claims, "old", "main0", A, slots(0, 0, 1, 2, 3), sure=True)
    new = read(replace(pod("a", 4, card="1"), uid="new"))
    outcome = look(claims, [new], {"a/main0": slots(0, 0, 1, 2, 3)})
    assert (outcome.done, outcome.promises, outcome.claims.load(A)) == ((), (), 4)
    assert new.next(outcome.claims) is not None
    # And once the new one is admitted, each has its own.
    give(claims, "new", "main0", B, slots(1, 0, 1, 2, 3))
    outcome = look(claims, [new], {"a/main0": slots(0, 0, 1, 2, 3) | slots(1, 0, 1, 2, 3)})
    assert done(outcome) == ["new"]
    assert (outcome.claims.load(A), outcome.claims.load(B)) == (4, 4)


# --- A daemon that was started anew -----------------------------------------------------------------------------------


def test_a_marked_pod_was_told_what_it_says():
    """By another plugin, which does not look at ids."""
    outcome = look(Claims(), order(pod("a", 4, assigned="true")), {"a/main0": slots(1, 0, 1, 2, 3)})
    assert (outcome.claims.load(A), outcome.claims.load(B)) == (4, 0)
    assert (outcome.promises, outcome.done, outcome.wrong, outcome.unknown) == ((), (), (), ())


def test_an_unmarked_pod_has_what_its_slots_say_if_there_is_a_pod_that_it_was_taken_for():
    seekers = order(pod("a", 4, card="0"), pod("b", 4, card="1", time=1))
    outcome = look(Claims(), seekers, {"a/main0": slots(1, 0, 1, 2, 3)})
    assert (outcome.claims.load(A), outcome.claims.load(B)) == (0, 4)
    assert promises(outcome) == {"a": (B,), "b": (A,)}


def test_what_an_unmarked_pod_has_is_not_known_if_ids_and_annotation_differ():
    """Killed between Allocate and the mark: nothing says whether slots were lacking, or another pod was meant."""
    held = {"a/main0": slots(1, 0, 1, 2, 3)}
    outcome = look(Claims(), order(pod("a", 4)), held)
    assert (outcome.claims.load(A), outcome.claims.load(B)) == (4, 4)
    assert (outcome.promises, outcome.done) == ((), ())
    assert [(each.seeker.uid, each.devices) for each in outcome.unknown] == [("a", (B,))]
    # It stays so, until an annotation says it.
    again = look(outcome.claims, order(pod("a", 4)), held)
    assert (again.claims.load(A), again.claims.load(B)) == (4, 4)
    known = look(outcome.claims, order(pod("a", 4, assigned="true")), held)
    assert (known.claims.load(A), known.claims.load(B), known.unknown) == (4, 0, ())


def test_where_another_plugin_gave_ids_away_they_do_not_say_what_strangers_and_unmarked_pods_have():
    seekers = order(pod("old", 4, assigned="true"), pod("a", 4), pod("b", 4, card="1", time=1))
    held = {"old/main0": slots(1, 0, 1, 2, 3), "a/main0": slots(1, 4, 5, 6, 7), "gone/main0": slots(2, 0, 1)}
    outcome = look(Claims(), seekers, held)
    assert [outcome.claims.load(device) for device in (A, B, C)] == [4 + 4 + 2, 4 + 2, 4 + 2]
    assert [each.seeker.uid for each in outcome.unknown] == ["a"]
    assert outcome.strangers == (("default", "gone", "main0"),)


# --- A scheduler that counts by what it wrote -------------------------------------------------------------------------

KEEP = replace(ASSIGN, actual="actual")


def test_its_promises_are_never_rewritten_and_what_is_not_kept_is_wrong():
    seekers, claims = pods(4, 4), Claims()
    give(claims, "a", "main0", A, slots(0, 0, 1, 2, 3))
    give(claims, "b", "main0", B, slots(1, 0, 1, 2, 3))
    held = {"b/main0": slots(0, 0, 1, 2, 3), "a/main0": slots(1, 0, 1, 2, 3)}
    outcome = look(claims, seekers, held, keep=True)
    assert (outcome.promises, outcome.done) == ((), ())
    assert {each.seeker.uid: each.devices for each in outcome.wrong} == {"a": (B,), "b": (A,)}
    assert (outcome.claims.load(A), outcome.claims.load(B)) == (4, 4)


def test_what_was_written_about_a_pod_that_is_astray_is_known_to_the_next_daemon():
    one = read(pod("a", 4, assigned="true", actual='{"main0":{"1":4}}'), KEEP)
    outcome = look(Claims(), [one], {"a/main0": slots(1, 0, 1, 2, 3)}, keep=True)
    assert (outcome.claims.load(A), outcome.claims.load(B)) == (0, 4)
    assert [each.seeker.uid for each in outcome.wrong] == ["a"]


def test_a_pod_that_was_promised_nothing_and_has_a_device_is_wrong():
    claims = Claims()
    give(claims, "b", "main0", B, slots(1, 0, 1, 2, 3))
    seekers = order(pod("f", 4, card="7"), pod("b", 4, card="1", time=1))
    outcome = look(claims, seekers, {"f/main0": slots(1, 0, 1, 2, 3)})
    assert [(each.seeker.uid, each.devices) for each in outcome.wrong] == [("f", (B,))]
    # A node with one device has no other that it could have meant.
    only = look(Claims(), order(pod("f", 4, card="")), {"f/main0": slots(0, 0, 1, 2, 3)}, room={A: 8})
    assert (only.wrong, only.unknown) == ((), ())


def test_what_was_given_to_a_pod_that_was_gone_is_kept_for_the_one_that_goes_on():
    claims = Claims()
    give(claims, "gone", "init0", A, slots(0, 0, 1, 2, 3), init=True)
    outcome = look(claims, order(pod("p", 4, init=[4])), {}, grace_s=0.0)
    assert [claim.uid for claim in outcome.claims] == ["gone"]
    assert len(look(claims, order(pod("p", 4, init=[4])), {}, now_s=GRACE_S + 1).claims) == 0


def test_an_init_container_of_an_earlier_daemon_is_no_reason_to_wait():
    outcome = look(Claims(), order(pod("a", 4, init=[4])), {"a/main0": slots(0, 0, 1, 2, 3)})
    assert done(outcome) == ["a"]


# --- Init containers, which the kubelet does not show -----------------------------------------------------------------


def warm(name: str, card: str, phase: str = "Pending") -> Pod:
    return replace(pod(name, init=[4], card=card), phase=phase)


def test_a_pod_with_init_containers_only_is_done_when_it_runs_or_after_a_while():
    claims = Claims()
    give(claims, "a", "init0", A, slots(0, 0, 1, 2, 3), init=True)
    assert done(look(claims, [read(warm("a", "0"))], {})) == []
    outcome = look(claims, [read(warm("a", "0"))], {}, now_s=GRACE_S + 1)
    assert (done(outcome), outcome.claims.unsure) == (["a"], False)
    assert done(look(claims, [read(warm("a", "0", "Running"))], {})) == ["a"]


def test_who_uses_the_slots_of_an_init_container_again_is_its_pod():
    seekers = order(pod("a", 4, init=[4], card="0", time=1), pod("b", 4, init=[4], card="1", time=2))
    claims = Claims()
    give(claims, "a", "init0", A, slots(0, 0, 1, 2, 3), init=True)
    give(claims, "a", "main0", A, slots(0, 0, 1, 2, 3))
    outcome = look(claims, seekers, {"b/main0": slots(0, 0, 1, 2, 3)})
    assert {claim.key for claim in outcome.claims} == {("b", "init0"), ("b", "main0")}
    assert promises(outcome) == {"a": (B,), "b": (A,)}
    plain = order(pod("a", 4, init=[4], card="0", time=1), pod("b", 4, card="1", time=2))
    assert {claim.key for claim in look(claims, plain, {"b/main0": slots(0, 0, 1, 2, 3)}).claims} == {("b", "main0")}
