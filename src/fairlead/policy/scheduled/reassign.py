"""Reassigning: pods that were given what was meant for others get new assignments, so that all of them hold.

A container cannot be moved to another device once it has begun. But an assignment can: pods of the same amounts that
have each other's devices are right as soon as their annotations say so, and one that has nothing yet can be assigned
what is left. Only what would assign more of a device than it has is wrong, and reported.

Some schedulers count by what they wrote, and do not see that it was changed. Theirs is never rewritten. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from fairlead.model.names import DeviceId
from fairlead.policy.pods.annotations import Form
from fairlead.policy.pods.requests import share
from fairlead.policy.scheduled.allocations import Allocations
from fairlead.policy.scheduled.match import is_misplaced
from fairlead.policy.scheduled.pending import PendingPod

ByContainer = tuple[tuple[DeviceId, ...], ...]  # by request: where each container has its units
Room = Mapping[DeviceId, int]


class Placement(Struct, frozen=True):
    """A pod, and the devices that it has or shall have."""

    pending: PendingPod
    by_container: ByContainer
    partner: str = ""  # the pod that was assigned them before

    @property
    def devices(self) -> tuple[DeviceId, ...]:
        return tuple(dict.fromkeys(device for devices in self.by_container for device in devices))


class Reassigned(Struct, frozen=True):
    done: tuple[PendingPod, ...] = ()  # have all that they were assigned, and their annotations do not say so yet
    reassigned: tuple[Placement, ...] = ()  # their annotations must name other devices than they do
    wrong: tuple[Placement, ...] = ()  # have other devices than they were assigned, and that stays so
    unknown: tuple[Placement, ...] = ()  # have what they were assigned, or these: nothing says which


def reassign(
    pods: Sequence[PendingPod],
    admitted: Iterable[PendingPod],
    allocations: Allocations,
    room: Room,
    *,
    keep: bool = False,
) -> Reassigned:
    """From what the admitted pods have. `keep`: assignments are not rewritten; what is not as assigned is wrong."""
    done: list[PendingPod] = []
    misplaced: dict[str, tuple[PendingPod, ByContainer]] = {}
    wrong: list[Placement] = []
    unknown: list[Placement] = []
    for pending in admitted:
        has = _has(pending, allocations)
        maybe = tuple(dict.fromkeys(device for each in allocations.of(pending.uid) for device in each.maybe))
        if maybe:
            unknown.append(Placement(pending, (maybe,)))
        elif has == pending.assigned and not is_misplaced(pending, allocations):
            if pending.open:
                done.append(pending)
        elif not all(pending.assigned) and len(room) == 1:
            continue  # it was assigned nothing, and there is no other device that it could have meant
        elif keep or has == pending.assigned or not all(pending.assigned) or not _can_say(pending, has):
            wrong.append(Placement(pending, has))
        else:
            misplaced[pending.uid] = (pending, has)
    if not misplaced:
        return Reassigned(tuple(done), (), tuple(wrong), tuple(unknown))
    plan = _Plan(pods, allocations, room)
    plan.targets |= {uid: has for uid, (_, has) in misplaced.items()}
    left = plan.pass_on(misplaced.values())
    for pending, has in misplaced.values():
        if not plan.fits(plan.targets, has) and not plan.make_room(has, [*left, pending.assigned]):
            del plan.targets[pending.uid]
            wrong.append(Placement(pending, has))
    by_assigned: dict[ByContainer, PendingPod] = {}
    for pending in pods:
        if pending.uid in plan.targets:
            by_assigned.setdefault(pending.assigned, pending)
    reassigned = [
        Placement(pending, target, str(other.pod) if (other := by_assigned.get(target)) is not None else "")
        for pending in pods
        if (target := plan.targets.get(pending.uid)) is not None
    ]
    return Reassigned(tuple(done), tuple(reassigned), tuple(wrong), tuple(unknown))


def _can_say(pending: PendingPod, has: ByContainer) -> bool:
    """Whether annotations can assign it so. Those that number the containers leave out the init containers."""
    if pending.form is not Form.EACH:
        return pending.form is Form.ROW or len(set(has)) == 1
    pairs = list(zip(pending.requests, has, strict=True))
    first = next((devices[:1] for request, devices in pairs if request.number >= 0), ())
    return all(devices == first for request, devices in pairs if request.number < 0)


def _has(pending: PendingPod, allocations: Allocations) -> ByContainer:
    """An init container that is not known any more is taken to have had what it was assigned."""
    known = [allocations.get((pending.uid, request.container)) for request in pending.requests]
    has = tuple(c.devices if c is not None else w.devices for c, w in zip(known, pending.requests, strict=True))
    lasting = {c.devices for c in known if c is not None}
    if pending.form is Form.ONE and None in known and len(lasting) == 1:
        return (next(iter(lasting)),) * len(has)
    return has


class _Plan:
    """New assignments in the making. `targets`: by uid, what a pod has or shall have."""

    def __init__(self, pods: Sequence[PendingPod], allocations: Allocations, room: Room) -> None:
        self.targets: dict[str, ByContainer] = {}
        self._pods, self._allocations, self._room = pods, allocations, room
        self._idle = [s for s in pods if s.open and s.fault is None and not allocations.of(s.uid)]

    def pass_on(self, misplaced: Collection[tuple[PendingPod, ByContainer]]) -> list[ByContainer]:
        """Assigns to pods whose device was taken what the takers leave, if it has room. Returns what is left over."""
        left = []
        for shape in dict.fromkeys(pending.shape for pending, _ in misplaced):
            alike = [(pending.assigned, has) for pending, has in misplaced if pending.shape == shape]
            meant, given = Counter(by_container for by_container, _ in alike), Counter(has for _, has in alike)
            spare = list((meant - given).elements())
            for taken in (given - meant).elements():
                robbed = (s for s in self._idle if s.shape == shape and s.assigned == taken)
                uid = next((s.uid for s in robbed if s.uid not in self.targets), None)
                fitting = (one for one in spare if uid is not None and self.fits({**self.targets, uid: one}, one))
                if uid is not None and (target := next(fitting, None)) is not None:
                    self.targets[uid] = target
                    spare.remove(target)
            left += spare
        return left

    def make_room(self, has: ByContainer, left: Sequence[ByContainer]) -> bool:
        """Assigns another device to a pod of other amounts, which has nothing yet, if that helps."""
        devices = {device for where in has for device in where}
        for idle in self._idle:
            here = not devices.isdisjoint(device for where in idle.assigned for device in where)
            if idle.uid in self.targets or idle.form is not Form.ONE or not here:
                continue
            for by_container in left:
                if len(set(by_container)) != 1 or len(by_container[0]) != len(idle.assigned[0]):
                    continue
                moved = {**self.targets, idle.uid: (by_container[0],) * len(idle.assigned)}
                if self.fits(moved, (*has, by_container[0])):
                    self.targets = moved
                    return True
        return False

    def fits(self, targets: Mapping[str, ByContainer], where: Iterable[Iterable[str]]) -> bool:
        """Whether devices have room for all that have, or were assigned, a part of them."""
        total = Counter[str]()
        for pending in self._pods:
            if self._allocations.of(pending.uid):
                total.update(pending.footprint(_has(pending, self._allocations)))
            elif pending.open and pending.fault is None:
                total.update(pending.footprint(targets.get(pending.uid, pending.assigned)))
        here = {pending.uid for pending in self._pods}
        for each in self._allocations:
            total.update(dict.fromkeys(each.maybe, each.amount))
            if each.uid not in here:
                total.update(share(each.amount, each.devices, each.parts))
        return all(total[device] <= self._room.get(device, 0) for devices in where for device in devices)
