"""Reconciling: what was decided, against what the kubelet says afterwards about who has which slots.

Two pods that ask for as much may be admitted in another order than the one they were promised their devices in. Then
each has what was meant for the other. That is harmless once their promises are exchanged: both have the same amounts.
Pure: says what to do, does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.names import DeviceId, SlotId
from fairlead.policy.assign import Seeker
from fairlead.policy.claims import Claim, Claims

GRACE_S = 10.0  # an admission that is not seen by then has failed on something else

Holder = tuple[str, str, str]  # namespace, pod, container


class Promise(Struct, frozen=True):
    """A pod whose annotation must say another device than it does: the one that it, or its partner, really has."""

    seeker: Seeker
    devices: tuple[DeviceId, ...]
    partner: str = ""  # the pod it is exchanged with


class Wrong(Struct, frozen=True):
    """A pod that has another device than it was promised, and nothing can be done about it here."""

    seeker: Seeker
    devices: tuple[DeviceId, ...]


class Outcome(Struct, frozen=True):
    claims: Claims
    done: tuple[Seeker, ...] = ()  # have all that they asked for, where they were promised it
    promises: tuple[Promise, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    lost: tuple[Claim, ...] = ()  # nobody has the slots: the admission failed
    strangers: tuple[Holder, ...] = ()  # hold slots, and are not known here (yet)


def reconcile(
    claims: Claims,
    seekers: Sequence[Seeker],
    held: Mapping[Holder, frozenset[SlotId]],
    device_of: Mapping[SlotId, DeviceId],
    room: Mapping[DeviceId, int],
    now_s: float,
    grace_s: float = GRACE_S,
) -> Outcome:
    """`grace_s`: 0 when the kubelet asks for another pod, for then it has ended with all but the latest."""
    by_name = {(seeker.pod.namespace, seeker.pod.name): seeker for seeker in seekers}
    here = {seeker.uid: seeker for seeker in seekers}
    new = Claims(latest=claims.latest)
    strangers = []
    for holder, slots in held.items():
        namespace, pod, container = holder
        seeker = by_name.get((namespace, pod))
        want = seeker.want(container) if seeker is not None else None
        if seeker is None or want is None:
            strangers.append(holder)
            continue
        before = next((claim for slot in slots if (claim := claims.holder(slot)) is not None), None)
        devices = before.devices if before is not None else _told(seeker, container, slots, device_of)
        at_s = before.at_s if before is not None else now_s
        new.add(Claim(seeker.uid, container, slots, devices, at_s, init=want.init, sure=True))
    lost = []
    for claim in claims:
        owner = next((found for slot in claim.slots if (found := new.holder(slot)) is not None), None)
        if claim.key in new or (owner is not None and not claim.init):
            continue  # confirmed, or somebody else's
        kept = _keep_init(claim, owner, here, new) if claim.init else claim
        if kept is None or kept.uid not in here:
            continue
        if not claim.init and now_s - claim.at_s > (GRACE_S if claim.uid == claims.latest else grace_s):
            lost.append(claim)
            continue
        new.add(kept)
    new.latest = claims.latest
    done, promises, wrong = _judge(seekers, new, room, now_s)
    return Outcome(new, done, promises, wrong, tuple(lost), tuple(strangers))


def _told(
    seeker: Seeker, container: str, slots: frozenset[SlotId], device_of: Mapping[SlotId, DeviceId]
) -> tuple[DeviceId, ...]:
    """What a container was told before we were started.

    One that another plugin has served is marked, and was told what its annotation says. One that is not marked yet was
    served by an earlier daemon of ours, which chose slots of the device that it told.
    """
    want = seeker.want(container)
    promised = want.devices if want is not None else ()
    found = tuple(sorted({device_of[slot] for slot in slots if slot in device_of}))
    return found if seeker.open and len(found) == max(1, len(promised)) else promised


def _keep_init(claim: Claim, owner: Claim | None, here: Mapping[str, Seeker], new: Claims) -> Claim | None:
    """The kubelet does not list init containers. Who has their slots afterwards is the pod that they belong to."""
    if owner is None or owner.uid == claim.uid:
        return replace(claim, sure=any(other.sure for other in new.of(claim.uid)))
    seeker = here.get(owner.uid)
    wants = seeker.wants if seeker is not None else ()
    moved = next(
        (w for w in wants if w.init and w.amount == claim.amount and (owner.uid, w.container) not in new), None
    )
    return replace(claim, uid=owner.uid, container=moved.container, sure=True) if moved is not None else None


def _judge(
    seekers: Sequence[Seeker], claims: Claims, room: Mapping[DeviceId, int], now_s: float
) -> tuple[tuple[Seeker, ...], tuple[Promise, ...], tuple[Wrong, ...]]:
    done, wrong = [], []
    promises: dict[str, Promise] = {}
    for seeker in seekers:
        if not seeker.open or seeker.uid in promises or not _is_complete(seeker, claims, now_s):
            continue
        given = {claim.devices for claim in claims.of(seeker.uid)}
        if all((claim := claims.get((seeker.uid, w.container))) and claim.devices == w.devices for w in seeker.wants):
            done.append(seeker)
            continue
        promised = {want.devices for want in seeker.wants}
        if len(given) != 1 or len(promised) != 1:
            wrong.append(Wrong(seeker, tuple(sorted({d for devices in given for d in devices}))))
            continue
        (has,), (meant,) = given, promised
        partner = _partner(seeker, has, meant, seekers, claims, promises)
        if partner is not None:
            promises[seeker.uid] = Promise(seeker, has, str(partner.pod))
            promises[partner.uid] = Promise(partner, meant, str(seeker.pod))
        elif _has_room(seeker, has, seekers, room):
            promises[seeker.uid] = Promise(seeker, has)  # whoever it was meant for is gone
        else:
            wrong.append(Wrong(seeker, has))
    return tuple(done), tuple(promises.values()), tuple(wrong)


def _is_complete(seeker: Seeker, claims: Claims, now_s: float) -> bool:
    """Whether the kubelet has confirmed all that it lists. It does not list init containers."""
    found = [claims.get((seeker.uid, want.container)) for want in seeker.wants]
    if any(claim is None for claim in found):
        return False
    lasting = [claim for claim in found if claim is not None and not claim.init]
    if lasting:
        return all(claim.sure for claim in lasting)
    return seeker.pod.phase != "Pending" or all(claim is not None and now_s - claim.at_s > GRACE_S for claim in found)


def _partner(
    seeker: Seeker,
    has: tuple[DeviceId, ...],
    meant: tuple[DeviceId, ...],
    seekers: Sequence[Seeker],
    claims: Claims,
    taken: Mapping[str, Promise],
) -> Seeker | None:
    """The pod that was promised what this one has, and has nothing, or what this one was promised."""
    amounts = [(want.amount, want.init) for want in seeker.wants]
    for other in seekers:
        if other.uid == seeker.uid or other.uid in taken or not other.open or other.fault is not None:
            continue
        if [(want.amount, want.init) for want in other.wants] != amounts or {w.devices for w in other.wants} != {has}:
            continue
        if {claim.devices for claim in claims.of(other.uid)} <= {meant}:
            return other
    return None


def _has_room(
    seeker: Seeker, devices: tuple[DeviceId, ...], seekers: Sequence[Seeker], room: Mapping[DeviceId, int]
) -> bool:
    """Whether the devices hold this pod beside all others that were promised them."""
    for device in devices:
        promised = sum(
            want.amount // max(1, len(want.devices))
            for other in seekers
            if other.uid != seeker.uid
            for want in other.wants
            if not want.init and device in want.devices
        )
        if promised + seeker.units // len(devices) > room.get(device, 0):
            return False
    return True
