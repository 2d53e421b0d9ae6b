"""Exchange: pods that were given what was meant for others get new promises, so that all of them are kept.

A container cannot be moved to another device once it has begun. But a promise can: pods of the same amounts that have
each other's devices are right as soon as their annotations say so, and one that has nothing yet can be promised what is
left. Only what would promise more of a device than it has is wrong, and told.

Some schedulers count by what they wrote, and do not see that it was changed. Theirs is never rewritten. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from fairlead.model.names import DeviceId
from fairlead.policy.assign import is_astray
from fairlead.policy.claims import Claims
from fairlead.policy.promise import Form, Seeker

Plan = tuple[tuple[DeviceId, ...], ...]  # by want: where each container has its units
Room = Mapping[DeviceId, int]


class Promise(Struct, frozen=True):
    """A pod, and the devices that it has or shall have."""

    seeker: Seeker
    plan: Plan
    partner: str = ""  # the pod that was promised them before

    @property
    def devices(self) -> tuple[DeviceId, ...]:
        return tuple(dict.fromkeys(device for devices in self.plan for device in devices))


class Exchange(Struct, frozen=True):
    done: tuple[Seeker, ...] = ()  # have what they were promised, and are not marked
    promises: tuple[Promise, ...] = ()  # shall be promised something else
    wrong: tuple[Promise, ...] = ()  # have something else than they were promised, and that stays so
    unknown: tuple[Promise, ...] = ()  # nothing says which of two devices they have


def exchange(
    seekers: Sequence[Seeker], admitted: Iterable[Seeker], claims: Claims, room: Room, *, keep: bool = False
) -> Exchange:
    """What follows from what the admitted have. `keep`: no promise is rewritten; what is not as promised is wrong."""
    done: list[Seeker] = []
    astray: dict[str, tuple[Seeker, Plan]] = {}
    wrong: list[Promise] = []
    unknown: list[Promise] = []
    for seeker in admitted:
        has = _has(seeker, claims)
        maybe = tuple(dict.fromkeys(device for claim in claims.of(seeker.uid) for device in claim.maybe))
        if maybe:
            unknown.append(Promise(seeker, (maybe,)))
        elif has == seeker.plan and not is_astray(seeker, claims):
            if seeker.open:
                done.append(seeker)
        elif not all(seeker.plan) and len(room) == 1:
            continue  # it was promised nothing, and there is no other device that it could have meant
        elif keep or has == seeker.plan or not all(seeker.plan) or (seeker.form is Form.ONE and len(set(has)) > 1):
            wrong.append(Promise(seeker, has))
        else:
            astray[seeker.uid] = (seeker, has)
    if not astray:
        return Exchange(tuple(done), (), tuple(wrong), tuple(unknown))
    targets = {uid: has for uid, (_, has) in astray.items()}
    idle = [s for s in seekers if s.open and s.fault is None and not claims.of(s.uid)]
    left = _pass_on(astray, idle, targets)
    for seeker, has in astray.values():
        if not _fits(seekers, claims, targets, room, has) and not _make_room(
            seekers, claims, targets, room, has, idle, [*left, seeker.plan]
        ):
            del targets[seeker.uid]
            wrong.append(Promise(seeker, has))
    by_plan: dict[Plan, Seeker] = {}
    for seeker in seekers:
        if seeker.uid in targets:
            by_plan.setdefault(seeker.plan, seeker)
    promises = [
        Promise(seeker, target, str(other.pod) if (other := by_plan.get(target)) is not None else "")
        for seeker in seekers
        if (target := targets.get(seeker.uid)) is not None
    ]
    return Exchange(tuple(done), tuple(promises), tuple(wrong), tuple(unknown))


def _has(seeker: Seeker, claims: Claims) -> Plan:
    """An init container that is not known any more is taken to have had what it was promised."""
    known = [claims.get((seeker.uid, want.container)) for want in seeker.wants]
    has = tuple(c.devices if c is not None else w.devices for c, w in zip(known, seeker.wants, strict=True))
    lasting = {c.devices for c in known if c is not None}
    if seeker.form is Form.ONE and None in known and len(lasting) == 1:
        return (next(iter(lasting)),) * len(has)
    return has


def _pass_on(astray: Mapping[str, tuple[Seeker, Plan]], idle: Sequence[Seeker], targets: dict[str, Plan]) -> list[Plan]:
    """Gives those whose promise was taken what the takers leave. Returns what is left over."""
    left = []
    for shape in dict.fromkeys(seeker.shape for seeker, _ in astray.values()):
        alike = [(seeker.plan, has) for seeker, has in astray.values() if seeker.shape == shape]
        meant, given = Counter(plan for plan, _ in alike), Counter(has for _, has in alike)
        spare = list((meant - given).elements())
        for taken in (given - meant).elements():
            victim = next(
                (s for s in idle if s.shape == shape and s.plan == taken and s.uid not in targets and spare), None
            )
            if victim is not None:
                targets[victim.uid] = spare.pop(0)
        left += spare
    return left


def _make_room(
    seekers: Sequence[Seeker],
    claims: Claims,
    targets: dict[str, Plan],
    room: Room,
    has: Plan,
    idle: Sequence[Seeker],
    left: Sequence[Plan],
) -> bool:
    """Promises another device to a pod of other amounts, which has nothing yet, if that helps."""
    devices = {device for where in has for device in where}
    for victim in idle:
        if (
            victim.uid in targets
            or victim.form is not Form.ONE
            or devices.isdisjoint(device for where in victim.plan for device in where)
        ):
            continue
        for plan in left:
            if len(set(plan)) != 1 or len(plan[0]) != len(victim.plan[0]):
                continue
            moved = {**targets, victim.uid: (plan[0],) * len(victim.plan)}
            if _fits(seekers, claims, moved, room, (*has, plan[0])):
                targets.update(moved)
                return True
    return False


def _fits(
    seekers: Sequence[Seeker], claims: Claims, targets: Mapping[str, Plan], room: Room, where: Iterable[Iterable[str]]
) -> bool:
    """Whether devices have room for all that have, or were promised, a part of them."""
    total: dict[DeviceId, int] = {}
    here = {seeker.uid for seeker in seekers}
    for seeker in seekers:
        given = claims.of(seeker.uid)
        plan = _has(seeker, claims) if given else targets.get(seeker.uid, seeker.plan)
        if not given and (not seeker.open or seeker.fault is not None):
            continue
        for device, units in seeker.footprint(plan).items():
            total[device] = total.get(device, 0) + units
    for claim in claims:
        if claim.uid not in here:
            for device in dict.fromkeys((*claim.devices, *claim.maybe)):
                total[device] = total.get(device, 0) + Claims([claim]).load(device)
    return all(total.get(device, 0) <= room.get(device, 0) for devices in where for device in devices)
