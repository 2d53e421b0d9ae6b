"""Assignment: which pending pod a question of the kubelet is for.

The kubelet names neither pod nor container; it says how many units it needs. It admits one pod after the other, and the
containers of a pod in their order, init containers first. So the question is for, in this order: the pod whose init
container has the very slots that are asked for again; the pod whose admission is under way; the pod that came to the
node first, and whose device has room. If that one was promised nothing that can be read, it is refused: the next in
the order has not been asked for yet. How pods are read stands in `promise`. Pure.
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
from fairlead.policy.claims import Claim, Claims, share
from fairlead.policy.promise import Form, Seeker, Want

Room = Mapping[DeviceId, int]  # how many units each device has


class Match(Struct, frozen=True):
    seeker: Seeker
    want: Want
    rivals: tuple[Seeker, ...] = ()  # they ask for as much, of other devices, and come later
    moved: tuple[Claim, ...] = ()  # given to this pod in truth, as its further question shows
    left: str = ""  # uid of the pod that they were given to
    again: bool = False  # it has had this already, and the kubelet took it away: it forgot, or the pod has ended


class Miss(Struct, frozen=True):
    """No pod, and why. `later`: it may be otherwise in a moment. `uid`: the pod that is taken to be asked for."""

    reason: str
    later: bool = True
    uid: str = ""
    unseen: bool = False  # no pod is known that asks for so much: it may only be one that is not known yet


def match(
    seekers: Sequence[Seeker],
    claims: Claims,
    amount: int,
    slots: Sequence[SlotId] = (),
    room: Room | None = None,
    *,
    refused: AbstractSet[str] = frozenset(),
    keep: bool = False,
) -> Match | Miss:
    """`seekers` in their order. `slots`: those that the container will have in any case. `room`: None: any.

    `refused`: uids of pods that were refused a moment ago, and ask no more. `keep`: promises are not rewritten.
    """
    first = _again(seekers, claims, amount, slots) or _next_of(claims.latest, seekers, claims, amount, slots)
    if first is not None:
        return _with_room(first, claims, room)
    if is_under_way(claims, slots):
        return Miss(f"no pod asks for {amount}, and before that for what it uses again")
    full: list[Miss] = []
    found: list[tuple[Seeker, Want]] = []
    faulty: Seeker | None = None
    for seeker in seekers:
        want = _next(seeker, claims, amount, slots) if seeker.uid not in refused else None
        if want is None:
            continue
        if not found and seeker.fault is not None:
            # The kubelet asks for this one first. To pass it over would give it what a later pod was promised.
            faulty = seeker
            break
        if seeker.fault is not None:
            continue
        if not found and room is not None and (miss := check_room(seeker, want, claims, room)) is not None:
            other = _elsewhere(seeker, want, seekers, claims, room) if keep else None
            if other is None:
                full.append(miss)
                continue
            want = other
        found.append((seeker, want))
    if found:
        seeker, want = found[0]
        return Match(seeker, want, tuple(other for other, its in found[1:] if its.devices != want.devices))
    other_match = _move(claims.latest, seekers, claims, amount, slots) or _repeat(seekers, claims, amount, slots)
    if other_match is not None and isinstance(fits := _with_room(other_match, claims, room), Match):
        return fits
    if faulty is not None and faulty.fault is not None:
        told = [f"{faulty.pod}: {faulty.fault.text}", *(miss.reason for miss in full)]
        return Miss(some(told, 3), later=faulty.fault.later, uid=faulty.uid)
    if full:
        return Miss(some([miss.reason for miss in full], 3), uid=full[0].uid)
    others = [f"{s.pod} asks for {want.amount}" for s in seekers if s.open and (want := s.next(claims))]
    return Miss(f"no pod asks for {amount}" + (f"; {some(others, 3)}" if others else ""), unseen=True)


def _next(seeker: Seeker, claims: Claims, amount: int, slots: Sequence[SlotId]) -> Want | None:
    """What the pod will ask for next, if it is so much. It may still lack something."""
    if amount not in seeker.amounts or not seeker.open:
        return None
    want = seeker.next(claims)
    if want is None or want.amount != amount:
        return None
    given = [claim for claim in claims.of(seeker.uid) if claim.slots]
    return _follow(seeker, want, given) if _goes_on(given, slots) else None


def _follow(seeker: Seeker, want: Want, given: Sequence[Claim]) -> Want:
    """A further container goes where the first ones of its pod are, be that the device of a pod it was taken for."""
    has = {claim.devices for claim in given}
    return replace(want, devices=has.pop()) if seeker.form is Form.ONE and len(has) == 1 else want


def _next_of(uid: str, seekers: Sequence[Seeker], claims: Claims, amount: int, slots: Sequence[SlotId]) -> Match | None:
    seeker = next((seeker for seeker in seekers if seeker.pod.uid == uid), None) if uid else None
    want = _next(seeker, claims, amount, slots) if seeker is not None and seeker.fault is None else None
    return Match(seeker, want) if seeker is not None and want is not None else None


def _goes_on(given: Sequence[Claim], slots: Sequence[SlotId]) -> bool:
    """The kubelet takes what a pod's init containers had before anything else. It asks for nothing else twice."""
    lasting = frozenset[SlotId]().union(*(claim.slots for claim in given if not claim.init))
    spare = frozenset[SlotId]().union(*(claim.slots for claim in given if claim.init)) - lasting
    return not spare.isdisjoint(slots) if spare else lasting.isdisjoint(slots)


def _again(seekers: Sequence[Seeker], claims: Claims, amount: int, slots: Sequence[SlotId]) -> Match | None:
    """The container that uses the slots of its pod's init container again."""
    claim = claims.holder_of(slots)
    if claim is None:
        return None
    if not claim.init:  # an init container in truth; or slots that were given back meanwhile, as nobody has told yet
        return _move(claim.uid, seekers, claims, amount, slots) if is_under_way(claims, slots) else None
    return (
        _next_of(claim.uid, seekers, claims, amount, slots)
        or _repeat([seeker for seeker in seekers if seeker.uid == claim.uid], claims, amount, slots)
        or _move(claim.uid, seekers, claims, amount, slots)
    )


def is_under_way(claims: Claims, slots: Sequence[SlotId]) -> bool:
    """Whether they were given a moment ago, so that only the same pod can ask for them once more.

    A kubelet asks for a preference before it gives away anything that it does not use again. Who does not ask at all
    gives no such hint.
    """
    claim = claims.holder_of(slots)
    return claim is not None and not claim.sure and not claim.blunt and (claim.init or claim.uid == claims.latest)


def _move(uid: str, seekers: Sequence[Seeker], claims: Claims, amount: int, slots: Sequence[SlotId]) -> Match | None:
    """The pod that was given something does not go on like this, but another one does that has begun alike."""
    given = [claim for claim in claims.of(uid) if claim.slots] if uid else []
    if not given or any(claim.sure for claim in given):
        return None
    begun = [claim.amount for claim in given]
    for seeker in seekers:
        if not seeker.open or seeker.fault is not None:
            continue
        if [want.amount for want in seeker.wants[: len(begun) + 1]] != [*begun, amount]:
            continue
        moved = tuple(
            replace(claim, uid=seeker.uid, container=want.container, init=want.init)
            for claim, want in zip(given, seeker.wants, strict=False)
        )
        # It may be the same pod, whose first containers are asked for anew.
        has = [claim for claim in claims.of(seeker.uid) if claim.slots] if seeker.uid != uid else []
        if has or [claim.key for claim in moved] == [claim.key for claim in given] or not _goes_on(moved, slots):
            continue
        want = _follow(seeker, seeker.wants[len(begun)], moved)
        return Match(seeker, want, moved=moved, left=uid)
    return None


def _repeat(seekers: Sequence[Seeker], claims: Claims, amount: int, slots: Sequence[SlotId]) -> Match | None:
    """A kubelet that was restarted before it wrote down what it was given has those slots free, and asks again."""
    for seeker in seekers:
        if not seeker.open or seeker.fault is not None:
            continue
        given = [claim for claim in claims.of(seeker.uid) if claim.slots]
        for want in seeker.wants:
            claim = claims.get((seeker.uid, want.container))
            if want.amount == amount and claim is not None and not claim.slots and _goes_on(given, slots):
                return Match(seeker, _follow(seeker, want, given), again=True)
    return None


# --- Room -------------------------------------------------------------------------------------------------------------


def _with_room(found: Match, claims: Claims, room: Room | None) -> Match | Miss:
    if room is None:
        return found
    if found.moved:
        claims = Claims((*(claim for claim in claims if claim.uid != found.left), *found.moved))
    return check_room(found.seeker, found.want, claims, room) or found


def check_room(seeker: Seeker, want: Want, claims: Claims, room: Room) -> Miss | None:
    """A promise that the device cannot keep: whoever made it has counted otherwise than the kubelet."""
    for device, units in share(want.amount, want.devices, want.parts).items():
        used = claims.load(device)
        if used + units - min(units, claims.spare(seeker.uid, device)) > room.get(device, 0):
            has = f"{device} has {room.get(device, 0)}, and pods hold {used} of them"
            return Miss(f"{seeker.pod}: {units} units do not fit: {has}", uid=seeker.uid)
    return None


def _elsewhere(seeker: Seeker, want: Want, seekers: Sequence[Seeker], claims: Claims, room: Room) -> Want | None:
    """Another device for a pod whose own is full because of pods that got others than they were promised.

    What those were promised is free in truth. It is taken only if it has room for all that were promised a part of it.
    """
    if seeker.form is not Form.ONE or len(want.devices) != 1 or claims.of(seeker.uid):
        return None
    astray = [s for s in seekers if s.form is Form.ONE and is_astray(s, claims)]
    if not any(want.devices == claim.devices for s in astray for claim in claims.of(s.uid)):
        return None
    for device in dict.fromkeys(device for s in astray for devices in s.plan for device in devices):
        waiting = sum(
            other.footprint(other.plan).get(device, 0)
            for other in seekers
            if other.open and other.uid != seeker.uid and other.fault is None and other.next(claims) is not None
        )
        need = seeker.footprint([(device,)] * len(seeker.wants))[device]
        if claims.load(device) + waiting + need <= room.get(device, 0):
            return replace(want, devices=(device,))
    return None


def is_astray(seeker: Seeker, claims: Claims) -> bool:
    """Whether a container of it was told other devices than it was promised."""
    mine = ((claims.get((seeker.uid, want.container)), want) for want in seeker.wants)
    return any(claim is not None and (claim.devices, claim.parts) != (want.devices, want.parts) for claim, want in mine)


def choose_slots(
    want: Want,
    slots_of: Mapping[DeviceId, Sequence[Slot]],
    free: AbstractSet[SlotId],
    must: Sequence[SlotId],
    *,
    strict: bool,
) -> tuple[SlotId, ...]:
    """Slots of the promised devices, of each its part; in need, and unless strict, slots of others.

    Empty: there are not enough.
    """
    chosen = list(must)
    taken = set(must)

    def take(device: DeviceId, most: int) -> None:
        mine = (slot.id for slot in slots_of.get(device, ()) if slot.id in free and slot.id not in taken)
        more = list(islice(mine, max(0, min(most, want.amount - len(chosen)))))
        chosen.extend(more)
        taken.update(more)

    if len(want.devices) > 1:
        has = dict.fromkeys(want.devices, 0)
        for device in want.devices:
            has[device] = sum(slot.id in taken for slot in slots_of.get(device, ()))
        for device, units in share(want.amount, want.devices, want.parts).items():
            take(device, units - has[device])
    for device in (*want.devices, *(() if strict else sorted(slots_of.keys() - set(want.devices)))):
        take(device, want.amount)
    return tuple(chosen) if len(chosen) >= want.amount else ()
