"""Decision: what the kubelet's question is answered with, or what has to be known first. Pure.

The runner does what a decision asks for and decides again, until there is an answer. The order of what may come first
is the order of `decide`: read the pods anew, ask the kubelet who holds what, wait for news of pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.names import SlotId
from fairlead.policy.pods.requests import ContainerRequest
from fairlead.policy.scheduled.match import Match, Miss, Search, check_room, choose_slots, is_under_way
from fairlead.policy.scheduled.state import Preferred, Refusal, State

HOLDERS_DEADLINE_S = 2.0  # while the kubelet waits for us
DOUBTS_DEADLINE_S = 0.5  # the same, where the answer would be good without it
SILENT_S = 5.0  # a pod is bound moments before its question: a watch that said nothing since may have missed it
FORGET_S = 30.0  # a question whose Allocate never came
REFUSED_S = 2.0  # by then the API server has said which pod the kubelet has ended
GOES_ON_S = 2.0  # the kubelet goes on with a pod's next container at once; the watch may show the pod later


class Question(Struct, frozen=True):
    """What the kubelet asks, and what was done to answer it."""

    amount: int
    slots: Sequence[SlotId]  # those that the container will have in any case
    asked_s: float
    end_s: float  # until when it may wait
    preference: bool  # GetPreferredAllocation asks; Allocate will ask again
    read: bool = False  # the pods were read from the API server for it
    asked: bool = False  # the kubelet was asked who holds what, after the last news of pods
    waited: bool = False
    over: bool = False  # it has waited as long as it may


class PodsKnown(Struct, frozen=True):
    """How far what is known of the node's pods can be relied on."""

    complete: bool
    problem: str
    read_s: float  # when the last read began that brought all pods
    silent_s: float  # how long the API server has said nothing
    away: bool  # a read has failed a moment ago
    budget_s: float  # how long the kubelet may still be kept waiting


class Give(Struct, frozen=True):
    """To the container of this pod. None: no pod asks, and the node has one device only, and may give it."""

    found: Match | None
    request: ContainerRequest


class Refuse(Struct, frozen=True):
    reason: str
    away: bool  # because the pods are not known


class ReadPods(Struct, frozen=True):
    """Read all pods from the API server."""


class AskHolders(Struct, frozen=True):
    """Ask the kubelet who holds what, and observe it."""

    timeout_s: float


class WaitForPods(Struct, frozen=True):
    """Wait for news of pods. `last`: when the time is over without news, the question is over."""

    timeout_s: float
    last: bool


Decision = Give | Refuse | ReadPods | AskHolders | WaitForPods


def ask_preference(
    state: State, amount: int, free: AbstractSet[SlotId], must: Sequence[SlotId], now_s: float
) -> tuple[State, Question]:
    """The kubelet has these slots free, so no container has them. It and Allocate wait together no longer than once."""
    end_s = now_s + state.assign.wait_s
    allocations = state.allocations.released(free - set(must) if must else free, init=True)
    deadlines = {**_live(state, now_s), amount: end_s}
    ended = state.ended - free if state.ended else state.ended
    state = replace(state, preferred=None, free=free, allocations=allocations, deadlines=deadlines, ended=ended)
    return state, Question(amount, must, now_s, end_s, preference=True)


def ask_allocation(state: State, slots: Sequence[SlotId], now_s: float) -> tuple[State, Question]:
    deadlines = _live(state, now_s)
    end_s = deadlines.pop(len(slots), now_s + state.assign.wait_s)
    return replace(state, deadlines=deadlines), Question(len(slots), slots, now_s, end_s, preference=False)


def decide(state: State, question: Question, pods: PodsKnown, now_s: float) -> tuple[State, Decision]:
    amount, going_s = question.amount, inf
    if not question.preference:
        state, going_s = _release(state, question.slots, now_s)
    found = look(state, amount, question.slots, pods)
    missed = isinstance(found, Miss)
    if not question.waited:
        doubtful = isinstance(found, Miss) or found.again or pods.silent_s > SILENT_S
        if doubtful and not question.read and not pods.away:
            return state, ReadPods()
        odd = isinstance(found, Miss) or bool(found.moved) or found.passed
        if not question.asked and (
            not state.adopted or (odd and (state.allocations.unconfirmed or state.has_unknown_pods))
        ):
            # Some may have had their devices before us, and something given earlier may have come to nothing.
            return state, AskHolders(HOLDERS_DEADLINE_S)
        if not question.asked and _doubts(state, amount):
            # What was meant for one pod may be another's. Seen now, this one can still get what it was assigned.
            return state, AskHolders(DOUBTS_DEADLINE_S)
    elif missed and not question.asked and not question.over and state.has_unknown_pods:
        return state, AskHolders(HOLDERS_DEADLINE_S)
    any_device = gives_any_device(state, amount, pods)
    waits_s = _waits_for_refused(state, found, amount, now_s)
    if not question.over and (waits_s or (_may_change(found, question, pods) and not any_device)):
        left_s = min(question.end_s - now_s, pods.budget_s)
        if left_s > 0:
            return state, WaitForPods(min(left_s, going_s, waits_s or inf), last=left_s <= going_s and not waits_s)
    if isinstance(found, Match):
        return state, Give(found, found.request)
    if any_device:
        return state, Give(None, state.any_device(amount))
    if pods.problem or not pods.complete or pods.read_s < question.asked_s:
        return state, Refuse(pods.problem, away=True)
    if not question.preference and found.uid:
        # It asks no more, and the next question is for another pod.
        rivals = frozenset(pending.uid for pending in state.asking(amount) if pending.uid != found.uid)
        state = replace(state, refused={**state.refused, found.uid: Refusal(now_s, amount, rivals)})
    return state, Refuse(f"{found.reason} (read from the API server just now)", away=False)


def choose(state: State, question: Question, give: Give) -> tuple[State, tuple[SlotId, ...]]:
    """The slots that carry the decision; empty: there are not enough."""
    free = state.free or frozenset()
    strict = state.assign.strict
    chosen = choose_slots(give.request, state.resource.slots_of, free, question.slots, strict=strict)
    if give.found is not None and chosen:
        preferred = Preferred(give.found.pending.uid, give.request.container, frozenset(chosen))
        state = replace(state, preferred=preferred)
    return state, chosen


def as_preferred(state: State, slots: frozenset[SlotId]) -> Give | None:
    """Whether the kubelet took what was preferred, and what it was preferred for still holds."""
    preferred = state.preferred
    if preferred is None or preferred.slots != slots:
        return None
    only = [pending for pending in state.pods.pending if pending.uid == preferred.uid]
    found = Search(only, state.allocations, len(slots), list(slots)).match()
    if isinstance(found, Miss) or found.request.container != preferred.container:
        return None
    if check_room(found.pending, found.request, state.allocations, state.spare_room()) is not None:
        return None
    others = [pending for pending in state.asking(len(slots)) if pending.uid != preferred.uid]
    rivals = tuple(pending for pending in others if pending.assigned != found.pending.assigned)
    return Give(replace(found, rivals=rivals), found.request)


def is_unasked(state: State, slots: frozenset[SlotId]) -> bool:
    """Whether the kubelet did not ask for a preference before it gave these slots."""
    unasked = state.free is None or slots.isdisjoint(state.free)
    return unasked and not is_under_way(state.allocations, list(slots))


def _live(state: State, now_s: float) -> dict[int, float]:
    return {amount: end_s for amount, end_s in state.deadlines.items() if now_s - end_s < FORGET_S}


def look(state: State, amount: int, slots: Sequence[SlotId], pods: PodsKnown) -> Match | Miss:
    """Whose question it is, by what is known now."""
    if pods.problem or not pods.complete:
        return Miss(pods.problem or "its pods are not read yet")
    room, refused, keep = state.spare_room(), state.refused.keys(), state.keeps_assignments
    return Search(state.pods.pending, state.allocations, amount, slots, room, refused, keep).match()


def _release(state: State, slots: Sequence[SlotId], now_s: float) -> tuple[State, float]:
    """The container that was given these slots before has them no more, unless it goes on. For how long it may."""
    holder, goes_on = state.allocations.holder_of(slots), is_under_way(state.allocations, slots)
    if holder is not None and goes_on and (left_s := holder.at_s + GOES_ON_S - now_s) > 0:
        return state, left_s
    allocations = state.allocations.released(frozenset(slots), init=goes_on)
    return (state if allocations is state.allocations else replace(state, allocations=allocations)), inf


def _doubts(state: State, amount: int) -> bool:
    """Whether something was given that another pod may have, and its annotations are not rewritten."""
    return state.keeps_assignments and any(
        each.rivals and not each.confirmed and each.amount == amount for each in state.allocations
    )


def _may_change(found: Match | Miss, question: Question, pods: PodsKnown) -> bool:
    """Whether it is worth waiting: for a pod, for room, or for what the pod still lacks.

    The kubelet asks for pods that are bound. One that the API server does not list then does not come later.
    """
    if isinstance(found, Match) or not found.later:
        return False
    return bool(pods.problem) or not (found.unseen and (question.read or pods.read_s > question.asked_s))


def gives_any_device(state: State, amount: int, pods: PodsKnown) -> bool:
    """Whether no other device can be meant: there is one, and the pod that asks was assigned none."""
    if not state.assign.only_device or len(state.names) != 1 or not pods.complete or pods.problem:
        return False
    asking = next(iter(state.asking(amount)), None)
    return asking is None or (asking.fault is not None and asking.fault.absent)


def _waits_for_refused(state: State, found: Match | Miss, amount: int, now_s: float) -> float:
    """How long to wait for news of a pod that was refused before the one that is to be served now. 0: not at all.

    If it was this one that the kubelet has ended, the question is once more for the other.
    """
    if isinstance(found, Miss):
        return 0.0
    uid = found.pending.uid
    ends = [one.at_s + REFUSED_S for one in state.refused.values() if one.amount == amount and uid in one.rivals]
    return max(0.0, max(ends, default=0.0) - now_s)
