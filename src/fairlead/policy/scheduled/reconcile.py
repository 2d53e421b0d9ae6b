"""Reconciling: what was decided, against what the kubelet says afterwards about who has which slots.

Pods that ask for as much may be admitted in another order than the one they were assigned their devices in. Then each
has what was meant for another. That is harmless once their annotations say so: see `reassign`.
Pure: says what to do, does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from fairlead.model.names import DeviceId, SlotId
from fairlead.policy.pods.requests import ContainerRequest
from fairlead.policy.scheduled.allocations import Allocation, Allocations, Draft
from fairlead.policy.scheduled.pending import PendingPod
from fairlead.policy.scheduled.reassign import Reassigned, reassign

UNKNOWN_POD = "?"  # stands for the uid of a pod that has been given something and is not known yet
GRACE_S = 10.0  # an admission that is not seen by then has failed on something else

Holder = tuple[str, str, str]  # namespace, pod, container
Held = Mapping[Holder, frozenset[SlotId]]
# Of a container: devices, units of each, and what it may be instead.
Known = tuple[tuple[DeviceId, ...], tuple[int, ...], tuple[DeviceId, ...]]


class Outcome(Reassigned, frozen=True, kw_only=True):
    allocations: Allocations
    mistaken: tuple[tuple[PendingPod, str], ...] = ()  # are shown the name and annotations of another pod, by its uid
    lost: tuple[Allocation, ...] = ()  # no container has the slots: the admission failed
    strangers: tuple[Holder, ...] = ()  # hold slots, and are not known here (yet)


def reconcile(
    allocations: Allocations,
    pods: Sequence[PendingPod],
    held: Held,
    device_of: Mapping[SlotId, DeviceId],
    room: Mapping[DeviceId, int],
    now_s: float,
    grace_s: float = GRACE_S,
    *,
    keep: bool = False,
) -> Outcome:
    """`grace_s`: 0 when the kubelet asks for another pod, for then it has ended with all but the latest.

    `room`: the devices, and how many units each has. `keep`: assignments are never rewritten.
    """
    here = {pending.uid: pending for pending in pods}
    new = Draft()
    strangers = _Shown(allocations, pods, held, device_of, room).confirm(new, now_s)
    lost, loose = [], []
    owners = {given.uid: _init_owner(given.uid, allocations, new) for given in allocations if given.init}
    for given in allocations:
        owner = owners[given.uid] if given.init else new.holder_of(given.slots)
        known = new.get(given.key)
        if known is not None and (not given.slots or given.slots <= known.slots):
            continue  # confirmed
        if owner is None and given.slots and given.uid not in here and _goes_on(given, allocations, now_s):
            new.add(given)  # given to a pod that was gone by then: so to another one
            continue
        if given.init and not given.slots and any(other.confirmed for other in new.of(given.uid)):
            continue  # it was asked for anew, and another pod's allocation tells where it is
        if given.init and owner is None and not given.confirmed and _has_lasting(new.of(given.uid)):
            loose.append(given)  # the pod's containers would have used these slots: it was not this pod's
        elif given.init:
            kept = _keep_init(given, owner, here, new, now_s)
            if kept is not None:
                new.add(kept)
        elif owner is not None or given.uid not in here:
            continue  # another container's, or none's
        elif known is not None:
            loose.append(given)
        elif _is_over(given, here[given.uid], now_s, GRACE_S if given.uid == allocations.latest else grace_s):
            lost.append(given)
        else:
            new.add(given)
    for given in loose:
        if not _hand_over(given, allocations, pods, new) and _goes_on(given, allocations, now_s):
            # Its admission is under way. The pod's next container shows which one it is: it uses the slots again.
            new.add(replace(given, uid=UNKNOWN_POD))
    # Who was given something last may be another than was thought.
    last = next((given for given in reversed(allocations.of(allocations.latest)) if given.slots), None)
    owner = new.holder_of(last.slots) if last is not None else None
    new.latest = owner.uid if owner is not None else allocations.latest
    admitted = [pending for pending in pods if not pending.pod.deleting and _is_complete(pending, new, now_s)]
    found = reassign(pods, admitted, new, room, keep=keep)
    mistaken = tuple(
        (pending, given.shown_uid)
        for pending in admitted
        for given in new.of(pending.uid)
        if given.shown_uid and given.shown_uid != pending.uid
    )
    return Outcome(
        *(found.done, found.reassigned, found.wrong, found.unknown),
        allocations=new,
        mistaken=mistaken,
        lost=tuple(lost),
        strangers=tuple(strangers),
    )


# --- What the kubelet shows -------------------------------------------------------------------------------------------


class _Shown:
    """Who holds which slots, by the kubelet, and which devices that makes for each container."""

    def __init__(
        self,
        allocations: Allocations,
        pods: Sequence[PendingPod],
        held: Held,
        device_of: Mapping[SlotId, DeviceId],
        devices: Iterable[DeviceId],
    ) -> None:
        self._allocations, self._pods, self._held, self._device_of = allocations, pods, held, device_of
        self._here = {pending.uid for pending in pods}
        self._by_name = {(pending.pod.namespace, pending.pod.name): pending for pending in pods}
        self._any_of = tuple(devices) if self._is_foreign() else ()  # where slots do not say it, all there are

    def confirm(self, new: Draft, now_s: float) -> list[Holder]:
        """Adds what is held. Returns the containers that are not known here."""
        allocations, here, strangers = self._allocations, self._here, []
        for holder, listed in self._held.items():
            namespace, pod, container = holder
            pending, request = self._find(holder)
            slots = listed
            # A pod of that name may have been here before, and its containers not have ended yet.
            for ghost in [given for given in allocations if given.confirmed and given.uid not in here and given.slots]:
                if ghost.container == container and ghost.slots < slots:
                    new.add(ghost)
                    slots -= ghost.slots
            before = allocations.holder_of(slots)
            # The kubelet may have confirmed it for a pod that the API server does not know any more.
            of_another = before and before.confirmed and before.uid not in here and "/" not in before.uid
            if pending is None or request is None or len(slots) != request.amount or of_another:
                strangers.append(holder)
                if before is None:
                    devices, parts, maybe = self._by_slots(slots)
                    before = Allocation("", container, slots, devices, now_s, parts=parts, maybe=maybe)
                uid = before.uid if before.confirmed and before.uid not in here and before.uid else f"{namespace}/{pod}"
                new.add(replace(before, uid=uid, container=container, slots=slots, init=False, confirmed=True))
                continue
            given = Allocation(pending.uid, container, slots, (), now_s, init=request.init, confirmed=True)
            if before is not None:
                given = replace(given, at_s=before.at_s, shown_uid=before.shown_uid)
            # What it has may be known later from its pod's annotations, never from other pods that came or went since.
            if before is None or (before.maybe and (before.uid != pending.uid or pending.tells(container))):
                devices, parts, maybe = self._before_us(pending, request, slots)
            else:
                devices, parts, maybe = before.devices, before.parts, before.maybe
            new.add(replace(given, devices=devices, parts=parts, maybe=maybe))
        return strangers

    def _find(self, holder: Holder) -> tuple[PendingPod | None, ContainerRequest | None]:
        namespace, pod, container = holder
        pending = self._by_name.get((namespace, pod))
        return pending, pending.request(container) if pending is not None else None

    def _lie_on(self, slots: frozenset[SlotId]) -> tuple[DeviceId, ...]:
        return tuple(sorted({self._device_of[slot] for slot in slots if slot in self._device_of}))

    def _by_slots(self, slots: frozenset[SlotId]) -> Known:
        """The devices of a container that nothing else speaks of."""
        found = self._lie_on(slots)
        return (found, (), ()) if len(found) == 1 and not self._any_of else ((), (), self._any_of or found)

    def _is_foreign(self) -> bool:
        """Whether some container has slots of another device than its own.

        Plugins that this one replaces do not look at the ids. Where their pods have taken the slots of a device, ours
        get slots of another one; and slots of several, where the kubelet chose them. So here ids do not say which
        device a container has.
        """
        for holder, slots in self._held.items():
            (pending, request), before = self._find(holder), self._allocations.holder_of(slots)
            lie_on = self._lie_on(slots)
            has: tuple[DeviceId, ...] = ()
            if before is not None and not before.maybe:
                has = before.devices
            elif (pending and request) and (pending.tells(request.container) or len(lie_on) > len(request.devices)):
                has = pending.actual.get(request.container, (request.devices, ()))[0]
            if has and set(has) != set(lie_on):
                return True
        return False

    def _before_us(self, pending: PendingPod, request: ContainerRequest, slots: frozenset[SlotId]) -> Known:
        """The devices of a container that was served before this daemon began.

        What an earlier daemon wrote about it is the truth. One whose pod is annotated has what its annotation says, by
        that daemon or another plugin. One whose pod is not annotated yet was served by an earlier daemon of ours, which
        chose slots of the device that it gave, unless there were none: then it is known only if both agree, or if there
        is a pod that it must have been taken for. One that was assigned nothing has what its slots say.
        """
        if (actual := pending.actual.get(request.container)) is not None:
            return (*actual, ())
        if not request.devices:
            return self._by_slots(slots)
        found = self._lie_on(slots)
        if not pending.open or set(found) == set(request.devices):
            return request.devices, request.parts, ()
        alike = any(
            (other.amount, set(other.devices)) == (request.amount, set(found))
            for rival in self._pods
            if rival.uid != pending.uid
            for other in rival.requests
        )
        if alike and not self._any_of and len(found) == len(request.devices):
            return found, (), ()
        maybe = tuple(device for device in self._any_of or found if device not in request.devices)
        return request.devices, request.parts, maybe


# --- What it does not show --------------------------------------------------------------------------------------------


def _is_over(given: Allocation, pending: PendingPod, now_s: float, grace_s: float) -> bool:
    """What was confirmed once is kept until the API server says that the pod ends: a kubelet may forget."""
    if given.confirmed:
        return pending.pod.deleting
    return now_s - given.at_s > grace_s


def _goes_on(given: Allocation, allocations: Allocations, now_s: float) -> bool:
    """Whether it is of the admission that may still be under way."""
    return not given.confirmed and given.uid == allocations.latest and now_s - given.at_s <= GRACE_S


def _init_owner(uid: str, allocations: Allocations, new: Allocations) -> Allocation | None:
    """The confirmed allocation that uses slots of a pod's init containers again. Not each of them need be used."""
    slots = frozenset[SlotId]().union(*(given.slots for given in allocations.of(uid) if given.init))
    found = {owner.uid: owner for slot in slots if (owner := new.holder(slot)) is not None}
    return found.get(uid) or (found[min(found)] if found else None)


def _has_lasting(allocations: Sequence[Allocation]) -> bool:
    return any(given.confirmed and not given.init for given in allocations)


def _keep_init(
    given: Allocation, owner: Allocation | None, here: Mapping[str, PendingPod], new: Draft, now_s: float
) -> Allocation | None:
    """The kubelet does not list init containers. Who has their slots afterwards is the pod that they belong to."""
    if owner is None or owner.uid == given.uid:
        pending = here.get(given.uid)
        if pending is None:
            return None
        begun = pending.pod.phase != "Pending" or now_s - given.at_s > GRACE_S
        return replace(given, confirmed=begun or any(other.confirmed for other in new.of(given.uid)))
    pending = here.get(owner.uid)
    requests = pending.requests if pending is not None else ()
    moved = next(
        (w for w in requests if w.init and w.amount == given.amount and (owner.uid, w.container) not in new), None
    )
    return replace(given, uid=owner.uid, container=moved.container, confirmed=True) if moved is not None else None


def _hand_over(given: Allocation, allocations: Allocations, pods: Sequence[PendingPod], new: Draft) -> bool:
    """Given to a pod that has other slots, as is seen now. So it is for the one whose slots that pod has."""
    for pending in pods:
        for request in pending.requests:
            key = (pending.uid, request.container)
            other = pending.uid != given.uid
            if other and key in allocations and key not in new and request.amount == given.amount:
                new.add(
                    replace(given, uid=pending.uid, container=request.container, init=request.init, confirmed=False)
                )
                return True
    return False


def _is_complete(pending: PendingPod, allocations: Allocations, now_s: float) -> bool:
    """Whether the kubelet has confirmed all that it lists. It does not list init containers."""
    found = [
        given
        for request in pending.requests
        if (given := allocations.get((pending.uid, request.container))) is not None
    ]
    lasting = [given for given in found if not given.init]
    if any(not request.init for request in pending.requests):
        # An init container that an earlier daemon served is not known any more.
        return len(lasting) == sum(not request.init for request in pending.requests) and all(
            given.confirmed for given in lasting
        )
    ended = pending.pod.phase != "Pending" or all(now_s - given.at_s > GRACE_S for given in found)
    return len(found) == len(pending.requests) and ended
