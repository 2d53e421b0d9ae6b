"""Explanation: which pod a request of some size would be for now, and why it is for no other. Pure."""

from __future__ import annotations

from msgspec import Struct

from fairlead.model.names import DeviceId
from fairlead.policy.scheduled.decide import PodsKnown, gives_any_device, look
from fairlead.policy.scheduled.match import Match, Room, check_room
from fairlead.policy.scheduled.pending import WAITS, PendingPod
from fairlead.policy.scheduled.state import State


class Explanation(Struct, frozen=True):
    """For `explain` and `status`. Pods are named as namespace/name."""

    pod: str = ""  # empty: the request is for no pod that is known
    container: str = ""
    devices: tuple[DeviceId, ...] = ()  # that the scheduler chose for the container, as its pod's annotations say
    parts: tuple[int, ...] = ()  # units of each device; empty: equal parts
    reason: str = ""  # why the request is for no pod
    others: tuple[tuple[str, str], ...] = ()  # the other pods that ask for the resource, each with why it is not meant


def explain(state: State, amount: int, pods: PodsKnown) -> Explanation:
    """As `decide` answers a request that reuses no slots."""
    if pods.problem or not pods.complete:
        return Explanation(reason=pods.problem or "its pods are not read yet")
    found, room = look(state, amount, (), pods), state.spare_room()
    meant = found.pending.uid if isinstance(found, Match) else ""
    others = tuple((str(p.pod), _why_not(p, state, amount, room)) for p in state.pods.pending if p.uid != meant)
    if isinstance(found, Match):
        request = found.request
        return Explanation(str(found.pending.pod), request.container, request.devices, request.parts, others=others)
    if gives_any_device(state, amount, pods):
        return Explanation(devices=state.any_device(amount).devices, others=others)
    return Explanation(reason=found.reason, others=others)


def _why_not(pending: PendingPod, state: State, amount: int, room: Room) -> str:
    if pending.pod.phase not in WAITS:
        return f"it is {pending.pod.phase}"
    if pending.pod.deleting:
        return "it is being deleted"
    if pending.uid in state.refused:
        return "it was refused a moment ago"
    if not pending.open:
        return "its annotations say that it has its devices"
    request = pending.next(state.allocations)
    if request is None:
        return "all its containers have their devices"
    if request.amount != amount:
        return f"its next container, {request.container}, asks for {request.amount}"
    if pending.fault is not None:
        return pending.fault.text
    miss = check_room(pending, request, state.allocations, room)
    return miss.reason if miss is not None else "another pod comes before it"
