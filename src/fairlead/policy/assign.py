"""Assignment: which pending pod a question of the kubelet is for.

The kubelet names neither pod nor container; it says how many units it needs. It admits one pod after the other, and the
containers of a pod in their order, init containers first. So the question is for, in this order: the pod whose init
container has the very slots that are asked for again; the pod whose admission is under way; the pod that was promised
its device first, and whose device has room. How pods are read stands in `promise`. Pure.
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
    rivals: tuple[Seeker, ...] = ()  # they ask for as much, of other devices
    before: tuple[Seeker, ...] = ()  # they ask for as much, were promised it earlier, and still lack something
    moved: tuple[Claim, ...] = ()  # given to this pod in truth, as its further question shows
    left: str = ""  # uid of the pod that they were given to


class Miss(Struct, frozen=True):
    """No pod, and why. `later`: it may be otherwise in a moment."""

    reason: str
    later: bool = True


def match(
    seekers: Sequence[Seeker], claims: Claims, amount: int, slots: Sequence[SlotId] = (), room: Room | None = None
) -> Match | Miss:
    """`seekers` in their order. `slots`: those that the container will have in any case. `room`: None: any."""
    first = _again(seekers, claims, amount, slots) or _next_of(claims.latest, seekers, claims, amount)
    if first is not None:
        return _with_room(first, claims, room)
    full: list[Miss] = []
    found: list[tuple[Seeker, Want]] = []
    lacking: list[Seeker] = []
    for seeker in seekers:
        want = seeker.next(claims) if seeker.open else None
        if want is None or want.amount != amount:
            continue
        want = _follow(seeker, want, claims)
        if seeker.fault is not None:
            lacking.append(seeker)
        elif room is not None and (miss := check_room(seeker, want, claims, room)) is not None:
            full.append(miss)
        else:
            found.append((seeker, want))
    if found:
        seeker, want = found[0]
        rivals = tuple(other for other, its in found[1:] if its.devices != want.devices)
        before = tuple(s for s in lacking if s.fault and s.fault.later and s.plan[0] and s.order < seeker.order)
        return Match(seeker, want, rivals, before)
    other = _move(claims.latest, seekers, claims, amount) or _repeat(seekers, claims, amount)
    if other is not None and isinstance(fits := _with_room(other, claims, room), Match):
        return fits
    if full or lacking:
        told = [miss.reason for miss in full] + [f"{s.pod}: {s.fault.text}" for s in lacking if s.fault]
        return Miss(some(told, 3), later=bool(full) or any(s.fault and s.fault.later for s in lacking))
    others = [f"{seeker.pod} asks for {want.amount}" for seeker in seekers if (want := seeker.next(claims))]
    return Miss(f"no pod asks for {amount}" + (f"; {some(others, 3)}" if others else ""))


def _again(seekers: Sequence[Seeker], claims: Claims, amount: int, slots: Sequence[SlotId]) -> Match | None:
    """The container whose slots are asked for once more, or the one that uses those of its pod's init container."""
    claim = claims.holder_of(slots)
    if claim is None:
        return None
    if not claim.init:
        return None  # slots that were given back meanwhile: nobody has told us yet
    return _next_of(claim.uid, seekers, claims, amount) or _move(claim.uid, seekers, claims, amount)


def _next_of(uid: str, seekers: Sequence[Seeker], claims: Claims, amount: int) -> Match | None:
    seeker = next((seeker for seeker in seekers if seeker.pod.uid == uid), None) if uid else None
    want = seeker.next(claims) if seeker is not None else None
    if seeker is None or want is None or want.amount != amount or seeker.fault is not None or not seeker.open:
        return None
    return Match(seeker, _follow(seeker, want, claims))


def _follow(seeker: Seeker, want: Want, claims: Claims) -> Want:
    """A further container goes where the first ones of its pod are, be that the device of a pod it was taken for."""
    if seeker.form is not Form.ONE:
        return want
    has = {claim.devices for claim in claims.of(seeker.uid) if claim.devices and claim.slots}
    return replace(want, devices=next(iter(has))) if len(has) == 1 else want


def _move(uid: str, seekers: Sequence[Seeker], claims: Claims, amount: int) -> Match | None:
    """The pod that was given something does not go on like this, but another one does that has begun alike."""
    given = [claim for claim in claims.of(uid) if claim.slots] if uid else []
    if not given or any(claim.sure for claim in given):
        return None
    begun = [(claim.amount, claim.init) for claim in given]
    for seeker in seekers:
        if not seeker.open or seeker.fault is not None or seeker.uid == uid or claims.of(seeker.uid):
            continue
        wants = seeker.wants
        if len(wants) <= len(begun) or list(seeker.shape[: len(begun)]) != begun or wants[len(begun)].amount != amount:
            continue
        want = wants[len(begun)]
        devices = {claim.devices for claim in given}
        if seeker.form is Form.ONE and len(devices) == 1:
            want = replace(want, devices=devices.pop())
        moved = tuple(
            replace(claim, uid=seeker.uid, container=its.container) for claim, its in zip(given, wants, strict=False)
        )
        return Match(seeker, want, moved=moved, left=uid)
    return None


def _repeat(seekers: Sequence[Seeker], claims: Claims, amount: int) -> Match | None:
    """A kubelet that was restarted before it wrote down what it was given has those slots free, and asks again."""
    for seeker in seekers:
        if not seeker.open or seeker.fault is not None:
            continue
        for want in seeker.wants:
            claim = claims.get((seeker.uid, want.container))
            if want.amount == amount and claim is not None and not claim.slots:
                return Match(seeker, want)
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
    for device, units in share(want.amount, want.devices).items():
        used = claims.load(device)
        if used + units - min(units, claims.spare(seeker.uid, device)) > room.get(device, 0):
            has = f"{device} has {room.get(device, 0)}, and pods hold {used} of them"
            return Miss(f"{seeker.pod}: {units} units do not fit: {has}")
    return None


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
        for device, units in share(want.amount, want.devices).items():
            take(device, units - has[device])
    for device in (*want.devices, *(() if strict else sorted(slots_of.keys() - set(want.devices)))):
        take(device, want.amount)
    return tuple(chosen) if len(chosen) >= want.amount else ()
