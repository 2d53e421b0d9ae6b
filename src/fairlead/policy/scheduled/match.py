"""Matching: which pending pod a question of the kubelet is for.

The kubelet names neither pod nor container; it says how many units it needs. It admits one pod after the other, and the
containers of a pod in their order, init containers first. So the question is for, in this order: the pod whose init
container has the very slots that are asked for again; the pod whose admission is under way; the pod that came to the
node first, and whose device has room. If that one was assigned nothing that can be read, it is refused: the next in
the order has not been asked for yet. How pods are read stands in `pending`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.errors import some
from fairlead.model.names import DeviceId, SlotId
from fairlead.model.resource import Slot
from fairlead.policy.pods.annotations import Form
from fairlead.policy.pods.requests import ContainerRequest, share
from fairlead.policy.scheduled.allocations import Allocation, Allocations
from fairlead.policy.scheduled.pending import PendingPod

Room = Mapping[DeviceId, int]  # how many units each device has


class Match(Struct, frozen=True):
    pending: PendingPod
    request: ContainerRequest
    rivals: tuple[PendingPod, ...] = ()  # they ask for as much, of other devices, and come later
    moved: tuple[Allocation, ...] = ()  # given to this pod in truth, as its further question shows
    left: str = ""  # uid of the pod that they were given to
    # It has had this already, and the kubelet took it away: it forgot, or the pod has ended. Or it was refused.
    again: bool = False
    passed: bool = False  # pods that came before it have no room on their devices, as far as is known


class Miss(Struct, frozen=True):
    """No pod, and why. `later`: it may be otherwise in a moment. `uid`: the pod that is taken to be asked for."""

    reason: str
    later: bool = True
    uid: str = ""
    unseen: bool = False  # no pod is known that asks for so much: it may only be one that is not known yet


class Search(Struct, frozen=True):
    """A question of the kubelet, and what is known to answer it."""

    pods: Sequence[PendingPod]  # in their order
    allocations: Allocations
    amount: int
    slots: Sequence[SlotId] = ()  # those that the container will have in any case
    room: Room | None = None  # None: any
    refused: AbstractSet[str] = frozenset()  # uids of pods that were refused a moment ago, and ask no more
    keep: bool = False  # assignments are not rewritten

    def match(self) -> Match | Miss:
        latest = self.allocations.latest
        first = self._again() or self._next_of(latest)
        if first is not None:
            return self._with_room(first)
        if is_under_way(self.allocations, self.slots):
            return Miss(f"no pod asks for {self.amount}, and before that for what it uses again")
        full: list[Miss] = []
        found: list[tuple[PendingPod, ContainerRequest]] = []
        faulty: PendingPod | None = None
        for pending in self.pods:
            request = self._next(pending) if pending.uid not in self.refused else None
            if request is None:
                continue
            if not found and pending.fault is not None:
                # The kubelet asks for this one first. To pass it over would give it what a later pod was assigned.
                faulty = pending
                break
            if pending.fault is not None:
                continue
            if not found and self.room is not None:
                miss = check_room(pending, request, self.allocations, self.room)
                other = self._elsewhere(pending, request, self.room) if miss is not None and self.keep else None
                if miss is not None and other is None:
                    full.append(miss)
                    continue
                request = other or request
            found.append((pending, request))
        if found:
            pending, request = found[0]
            rivals = tuple(other for other, its in found[1:] if its.devices != request.devices)
            return Match(pending, request, rivals, passed=bool(full))
        other_match = self._move(latest) or self._repeat(self.pods)
        if other_match is not None and isinstance(fits := self._with_room(other_match), Match):
            return fits
        if faulty is not None and faulty.fault is not None:
            reasons = [f"{faulty.pod}: {faulty.fault.text}", *(miss.reason for miss in full)]
            return Miss(some(reasons, 3), later=faulty.fault.later, uid=faulty.uid)
        if full:
            return Miss(some([miss.reason for miss in full], 3), uid=full[0].uid)
        if (refused := self._refused()) is not None:
            return refused
        asking = ((s, s.next(self.allocations)) for s in self.pods if s.open)
        others = [f"{s.pod} asks for {request.amount}" for s, request in asking if request is not None]
        return Miss(f"no pod asks for {self.amount}" + (f"; {some(others, 3)}" if others else ""), unseen=True)

    def _given(self, uid: str) -> list[Allocation]:
        return [each for each in self.allocations.of(uid) if each.slots]

    def _next(self, pending: PendingPod) -> ContainerRequest | None:
        """What the pod will ask for next, if it is so much. It may still lack something."""
        if self.amount not in pending.amounts or not pending.open:
            return None
        request = pending.next(self.allocations)
        if request is None or request.amount != self.amount:
            return None
        given = self._given(pending.uid)
        return _follow(pending, request, given) if _goes_on(given, self.slots) else None

    def _next_of(self, uid: str) -> Match | None:
        pending = next((pending for pending in self.pods if pending.pod.uid == uid), None) if uid else None
        request = self._next(pending) if pending is not None and pending.fault is None else None
        return Match(pending, request) if pending is not None and request is not None else None

    def _again(self) -> Match | None:
        """The container that uses the slots of its pod's init container again."""
        holder = self.allocations.holder_of(self.slots)
        if holder is None:
            return None
        uid = holder.uid
        if not holder.init:  # an init container in truth; or slots that were given back meanwhile, as is not known yet
            return self._move(uid) if is_under_way(self.allocations, self.slots) else None
        mine = [pending for pending in self.pods if pending.uid == uid]
        return self._next_of(uid) or self._repeat(mine) or self._move(uid)

    def _move(self, uid: str) -> Match | None:
        """The pod that was given something does not go on like this, but another one does that has begun alike."""
        given = self._given(uid) if uid else []
        if not given or any(each.confirmed for each in given):
            return None
        begun = [each.amount for each in given]
        for pending in self.pods:
            if not pending.open or pending.fault is not None:
                continue
            if [request.amount for request in pending.requests[: len(begun) + 1]] != [*begun, self.amount]:
                continue
            moved = tuple(
                replace(each, uid=pending.uid, container=request.container, init=request.init)
                for each, request in zip(given, pending.requests, strict=False)
            )
            # It may be the same pod, whose first containers are asked for anew.
            has = self._given(pending.uid) if pending.uid != uid else []
            if has or [each.key for each in moved] == [each.key for each in given] or not _goes_on(moved, self.slots):
                continue
            request = _follow(pending, pending.requests[len(begun)], moved)
            return Match(pending, request, moved=moved, left=uid)
        return None

    def _repeat(self, pods: Sequence[PendingPod]) -> Match | None:
        """A kubelet that was restarted before it wrote down what it was given has those slots free, and asks again."""
        for pending in pods:
            if not pending.open or pending.fault is not None:
                continue
            given = self._given(pending.uid)
            for request in pending.requests:
                each = self.allocations.get((pending.uid, request.container))
                emptied = request.amount == self.amount and each is not None and not each.slots
                if emptied and _goes_on(given, self.slots):
                    return Match(pending, _follow(pending, request, given), again=True)
        return None

    def _refused(self) -> Match | None:
        """A pod that was refused and still waits, where no other asks: the question before was not for it.

        A kubelet that was killed asks anew for pods that have ended meanwhile, and that the API server calls Running.
        """
        waiting = [pending for pending in self.pods if pending.uid in self.refused and pending.fault is None]
        found = replace(self, pods=waiting, refused=frozenset()).match() if waiting else None
        return replace(found, again=True) if isinstance(found, Match) else None

    def _with_room(self, found: Match) -> Match | Miss:
        if self.room is None:
            return found
        allocations = self.allocations
        if found.moved:
            allocations = Allocations((*(each for each in allocations if each.uid != found.left), *found.moved))
        return check_room(found.pending, found.request, allocations, self.room) or found

    def _elsewhere(self, pending: PendingPod, request: ContainerRequest, room: Room) -> ContainerRequest | None:
        """Another device for a pod whose own is full because of pods that got others than they were assigned.

        What those were assigned is free in truth. It is taken only if it has room for all that were assigned a part.
        """
        if pending.form is not Form.ONE or len(request.devices) != 1 or self.allocations.of(pending.uid):
            return None
        misplaced = [s for s in self.pods if s.form is Form.ONE and is_misplaced(s, self.allocations)]
        if not any(request.devices == each.devices for s in misplaced for each in self.allocations.of(s.uid)):
            return None
        asking = [s for s in self.pods if s.open and s.uid != pending.uid and s.fault is None]
        footprints = [s.footprint(s.assigned) for s in asking if s.next(self.allocations) is not None]
        for device in dict.fromkeys(device for s in misplaced for devices in s.assigned for device in devices):
            waiting = sum(footprint.get(device, 0) for footprint in footprints)
            need = pending.footprint([(device,)] * len(pending.requests))[device]
            if self.allocations.load(device) + waiting + need <= room.get(device, 0):
                return replace(request, devices=(device,))
        return None


def _follow(pending: PendingPod, request: ContainerRequest, given: Sequence[Allocation]) -> ContainerRequest:
    """A further container goes where the first ones of its pod are, be that the device of a pod it was taken for."""
    has = {each.devices for each in given}
    return replace(request, devices=has.pop()) if pending.form is Form.ONE and len(has) == 1 else request


def _goes_on(given: Sequence[Allocation], slots: Sequence[SlotId]) -> bool:
    """The kubelet takes what a pod's init containers had before anything else. It asks for nothing else twice."""
    lasting = frozenset[SlotId]().union(*(each.slots for each in given if not each.init))
    spare = frozenset[SlotId]().union(*(each.slots for each in given if each.init)) - lasting
    return not spare.isdisjoint(slots) if spare else lasting.isdisjoint(slots)


def is_under_way(allocations: Allocations, slots: Sequence[SlotId]) -> bool:
    """Whether they were given a moment ago, so that only the same pod can ask for them once more.

    A kubelet asks for a preference before it gives away anything that it does not use again. One that does not ask at
    all gives no such hint.
    """
    holder = allocations.holder_of(slots)
    if holder is None or holder.confirmed or holder.unasked:
        return False
    return holder.init or holder.uid == allocations.latest


def check_room(pending: PendingPod, request: ContainerRequest, allocations: Allocations, room: Room) -> Miss | None:
    """An assignment that the device has no room for: the scheduler has counted otherwise than the kubelet."""
    for device, units in share(request.amount, request.devices, request.parts).items():
        used = allocations.load(device)
        if used + units - min(units, allocations.reusable(pending.uid, device)) > room.get(device, 0):
            has = f"{device} has {room.get(device, 0)}, and pods hold {used} of them"
            return Miss(f"{pending.pod}: {units} units do not fit: {has}", uid=pending.uid)
    return None


def is_misplaced(pending: PendingPod, allocations: Allocations) -> bool:
    """Whether a container of it has other devices than it was assigned."""
    mine = ((allocations.get((pending.uid, request.container)), request) for request in pending.requests)
    return any(
        each is not None and (each.devices, each.parts) != (request.devices, request.parts) for each, request in mine
    )


def choose_slots(
    request: ContainerRequest,
    slots_of: Mapping[DeviceId, Sequence[Slot]],
    free: AbstractSet[SlotId],
    must: Sequence[SlotId],
    *,
    strict: bool,
) -> tuple[SlotId, ...]:
    """Slots of the assigned devices, of each its part; in need, and unless strict, slots of others.

    Empty: there are not enough.
    """
    chosen = list(must)
    taken = set(must)

    def take(device: DeviceId, most: int) -> None:
        mine = (slot.id for slot in slots_of.get(device, ()) if slot.id in free and slot.id not in taken)
        more = list(islice(mine, max(0, min(most, request.amount - len(chosen)))))
        chosen.extend(more)
        taken.update(more)

    if len(request.devices) > 1:
        has = dict.fromkeys(request.devices, 0)
        for device in request.devices:
            has[device] = sum(slot.id in taken for slot in slots_of.get(device, ()))
        for device, units in share(request.amount, request.devices, request.parts).items():
            take(device, units - has[device])
    for device in (*request.devices, *(() if strict else sorted(slots_of.keys() - set(request.devices)))):
        take(device, request.amount)
    return tuple(chosen) if len(chosen) >= request.amount else ()
