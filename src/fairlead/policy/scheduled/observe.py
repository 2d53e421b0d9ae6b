"""Observation: what follows when the kubelet has shown who holds what. Annotations to write, and reports. Pure.

What is right and what is wrong is decided in `reconcile`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.assign import Assign
from fairlead.model.errors import some
from fairlead.model.names import SlotId
from fairlead.model.pod import Pod
from fairlead.policy.pods.annotations import Form
from fairlead.policy.scheduled.allocations import Allocations
from fairlead.policy.scheduled.match import is_misplaced
from fairlead.policy.scheduled.pending import PendingPod, write_actual, write_assignment
from fairlead.policy.scheduled.reassign import Placement
from fairlead.policy.scheduled.reconcile import Held, Holder, reconcile
from fairlead.policy.scheduled.state import State, Texts


class Annotate(Struct, frozen=True):
    """Write annotations on a pod. `reassigns`: they name other devices, and are read as if they stood there already."""

    pod: Pod
    texts: Texts
    reassigns: bool = False


class Unlock(Struct, frozen=True):
    """Remove the lock that the scheduler has put on the node."""

    annotation: str


class Record(Struct, frozen=True):
    """An event for the journal."""

    event: str
    keys: Mapping[str, Any]


class Note(Struct, frozen=True):
    """A problem that there is now; empty: it is over."""

    topic: str
    problem: str


Effect = Annotate | Unlock | Record | Note


def observe(
    state: State, held: Held, others: Iterable[State], now_s: float, grace_s: float
) -> tuple[State, list[Effect]]:
    """`held`: who holds which slots, as the kubelet says. `others`: the states of the other resources."""
    by_id, name = state.resource.by_id, state.name
    device_of = {slot: by_id[slot].device for slots in held.values() for slot in slots if slot in by_id}
    outcome = reconcile(
        state.allocations, state.pods.pending, held, device_of, state.room, now_s, grace_s, keep=state.keeps_assignments
    )
    ended = _ended(state, outcome.allocations, held)
    state = replace(state, adopted=True, allocations=outcome.allocations, ended=ended)
    known = {uid: pod for uid, (pod, _, _) in state.pods.by_uid.items()}
    effects: list[Effect] = [
        Record("assignment-lost", {"resource": name, "pod": str(known.get(lost.uid)), "container": lost.container})
        for lost in outcome.lost
    ]
    wrong: dict[str, str] = {}
    for placement in outcome.reassigned:
        effects += _reassign(state, placement, wrong)
    complete = list(outcome.done)
    for placement in outcome.wrong:
        pending = placement.pending
        wrong[pending.uid] = _describe_wrong(placement, state.assign)
        if state.assign.actual:
            text = write_actual(state.allocations.of(pending.uid), _names(state))
            effects.append(Annotate(pending.pod, {state.assign.actual: text}))
            complete += [pending] if pending.open and all(pending.assigned) else []
    new = [p for p in complete if p.uid not in state.annotated and not _lacks_more(state, others, p.uid)]
    effects += [Annotate(pending.pod, state.assign.marks) for pending in new]
    wrong |= {each.pending.uid: _describe_unknown(each, state.assign) for each in outcome.unknown}
    for pending, uid in outcome.mistaken if state.shows_pods else ():
        has = wrong.get(pending.uid)
        shown = f"{pending.pod} was given the name and annotations of {known.get(uid, 'a pod that is gone')}, "
        shown += "which asked for as much"
        wrong[pending.uid] = f"{has}; {shown}" if has else shown
    effects += [Annotate(pending.pod, {state.assign.actual: ""}) for pending in _put_right(state, wrong)]
    effects += [
        Record("assignment-wrong", {"resource": name, "reason": text})
        for uid, text in wrong.items()
        if state.wrong.get(uid) != text
    ]
    all_wrong = "; ".join(wrong.values())
    cure = f"{all_wrong}. Delete the pod, so that it is admitted anew" if all_wrong else ""
    effects += [Note(f"assign {name}", cure), *_report_strangers(state, outcome.strangers)]
    if state.locked_for and all(pending.uid != state.locked_for for pending in state.pods.pending):
        # Its pod has failed on something else, between two containers.
        state, effects = replace(state, locked_for=""), [*effects, Unlock(state.assign.node_lock)]
    annotated = state.annotated | {pending.uid for pending in new}
    return replace(state, wrong=wrong, annotated=annotated, strangers=frozenset(outcome.strangers)), effects


def _ended(state: State, now: Allocations, held: Held) -> frozenset[SlotId]:
    """Slots of confirmed containers that have ended. If no other was given them, none has them but in old records."""
    left = {each.slots for each in state.allocations if each.confirmed and each.key not in now}
    found = state.ended.union(*left)
    return found.difference(now.slots, *held.values()) if found else found


def _names(state: State) -> dict[str, str]:
    return {device: name for name, device in state.names.items()}


def _reassign(state: State, placement: Placement, wrong: dict[str, str]) -> list[Effect]:
    """The new annotations of a pod. What they cannot say is wrong."""
    pod, names = placement.pending.pod, _names(state)
    texts = write_assignment(placement.pending, placement.by_container, state.assign, names)
    if texts is None:
        wrong[pod.uid] = _describe_wrong(placement, state.assign)
        return []
    keys = {
        "resource": state.name,
        "pod": str(pod),
        "before": pod.annotations.get(state.assign.device, ""),
        "after": ",".join(names[device] for device in placement.devices),
        "other": placement.partner,
    }
    return [Record("assignment-rewritten", keys), Annotate(pod, texts, reassigns=True)]


def _put_right(state: State, wrong: Mapping[str, str]) -> list[PendingPod]:
    """Pods that have what they were assigned after all, and whose annotation says otherwise."""
    found = []
    for pending in state.pods.pending if state.assign.actual else ():
        mine = state.allocations.of(pending.uid)
        known = pending.uid not in wrong and mine and all(each.confirmed for each in mine)
        if known and pending.actual and not is_misplaced(pending, state.allocations):
            found.append(pending)
    return found


def _lacks_more(state: State, others: Iterable[State], uid: str) -> bool:
    """Whether the pod asks for another resource that the same annotation speaks of, and has not got it yet."""
    alike = [other for other in others if other.assign.assigned == state.assign.assigned != ""]
    return any(p.uid == uid and p.next(other.allocations) is not None for other in alike for p in other.pods.pending)


def _report_strangers(state: State, strangers: Sequence[Holder]) -> list[Effect]:
    name = state.name
    effects: list[Effect] = [
        Record("assignment-unknown-pod", {"resource": name, "pod": f"{namespace}/{pod}", "container": container})
        for namespace, pod, container in sorted(set(strangers) - state.strangers)
    ]
    pods = some(sorted({f"{namespace}/{pod}" for namespace, pod, _ in strangers}), 3)
    problem = f"{pods}: the kubelet lists {name} for it, and the API server has no such pod" if pods else ""
    return [*effects, Note(f"strangers {name}", problem)]


def _describe_wrong(placement: Placement, assign: Assign) -> str:
    pending, has = placement.pending, f"{placement.pending.pod} has {', '.join(placement.devices)}"
    if not all(pending.assigned):
        return f"{has}, and was assigned nothing that can be read"
    key = assign.per_container if pending.form is Form.EACH else assign.device
    return f"{has}, and was assigned {pending.pod.annotations.get(key, '')}"


def _describe_unknown(placement: Placement, assign: Assign) -> str:
    says = placement.pending.pod.annotations.get(assign.device, "")
    return (
        f"which device {placement.pending.pod} has is not known: its ids are of {', '.join(placement.devices)}, "
        f"and its annotation {assign.device} says {says!r:.60}. Both count as taken"
    )
