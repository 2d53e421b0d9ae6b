"""Reconciling: what was decided, against what the kubelet says afterwards about who has which slots.

Pods that ask for as much may be admitted in another order than the one they were promised their devices in. Then each
has what was meant for another. That is harmless once their promises are exchanged: see `exchange`.
Pure: says what to do, does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.names import DeviceId, SlotId
from fairlead.policy.claims import Claim, Claims
from fairlead.policy.exchange import Promise, exchange
from fairlead.policy.promise import Seeker, Want

GRACE_S = 10.0  # an admission that is not seen by then has failed on something else

Holder = tuple[str, str, str]  # namespace, pod, container
Held = Mapping[Holder, frozenset[SlotId]]
# Of a container: devices, units of each, and what it may be instead.
Known = tuple[tuple[DeviceId, ...], tuple[int, ...], tuple[DeviceId, ...]]


class Outcome(Struct, frozen=True):
    claims: Claims
    done: tuple[Seeker, ...] = ()  # have all that they asked for, where they were promised it
    promises: tuple[Promise, ...] = ()  # pods whose annotations must say otherwise than they do
    wrong: tuple[Promise, ...] = ()  # have other devices than they were promised, and nothing can be done about it here
    unknown: tuple[Promise, ...] = ()  # what they were promised, or these: nothing says which
    mistaken: tuple[tuple[Seeker, str], ...] = ()  # were told the name and annotations of another pod, by its uid
    lost: tuple[Claim, ...] = ()  # nobody has the slots: the admission failed
    strangers: tuple[Holder, ...] = ()  # hold slots, and are not known here (yet)


def reconcile(
    claims: Claims,
    seekers: Sequence[Seeker],
    held: Held,
    device_of: Mapping[SlotId, DeviceId],
    room: Mapping[DeviceId, int],
    now_s: float,
    grace_s: float = GRACE_S,
    *,
    keep: bool = False,
) -> Outcome:
    """`grace_s`: 0 when the kubelet asks for another pod, for then it has ended with all but the latest.

    `room`: the devices, and how many units each has. `keep`: promises are never rewritten.
    """
    here = {seeker.uid: seeker for seeker in seekers}
    new = Claims()
    strangers = _confirm(new, claims, seekers, held, device_of, tuple(room), now_s)
    lost, loose = [], []
    for claim in claims:
        owner = new.holder_of(claim.slots)
        known = new.get(claim.key)
        if known is not None and (not claim.slots or claim.slots <= known.slots):
            continue  # confirmed
        if owner is None and claim.slots and claim.uid not in here and _goes_on(claim, claims, now_s):
            new.add(claim)  # given to a pod that was gone by then: so to another one
            continue
        if claim.init and not claim.slots and any(other.sure for other in new.of(claim.uid)):
            continue  # it was asked for anew, and another pod's claim tells where it is
        if claim.init:
            kept = _keep_init(claim, owner, here, new, now_s)
            if kept is not None:
                new.add(kept)
        elif owner is not None or claim.uid not in here:
            continue  # somebody else's, or nobody's
        elif known is not None:
            loose.append(claim)
        elif _is_over(claim, here[claim.uid], now_s, GRACE_S if claim.uid == claims.latest else grace_s):
            lost.append(claim)
        else:
            new.add(claim)
    for claim in loose:
        _hand_over(claim, claims, seekers, new)
    # Who was given something last may be another than was thought.
    last = next((claim for claim in reversed(claims.of(claims.latest)) if claim.slots), None)
    owner = new.holder_of(last.slots) if last is not None else None
    new.latest = owner.uid if owner is not None else claims.latest
    admitted = [seeker for seeker in seekers if not seeker.pod.deleting and _is_complete(seeker, new, now_s)]
    found = exchange(seekers, admitted, new, room, keep=keep)
    mistaken = tuple(
        (seeker, claim.words)
        for seeker in admitted
        for claim in new.of(seeker.uid)
        if claim.words and claim.words != seeker.uid
    )
    return Outcome(new, found.done, found.promises, found.wrong, found.unknown, mistaken, tuple(lost), tuple(strangers))


# --- What the kubelet shows -------------------------------------------------------------------------------------------


def _confirm(
    new: Claims,
    claims: Claims,
    seekers: Sequence[Seeker],
    held: Held,
    device_of: Mapping[SlotId, DeviceId],
    devices: Sequence[DeviceId],
    now_s: float,
) -> list[Holder]:
    by_name = {(seeker.pod.namespace, seeker.pod.name): seeker for seeker in seekers}
    here = {seeker.uid for seeker in seekers}
    any_of = devices if _is_foreign(claims, by_name, held, device_of) else ()
    strangers = []
    for holder, listed in held.items():
        namespace, pod, container = holder
        seeker = by_name.get((namespace, pod))
        want = seeker.want(container) if seeker is not None else None
        slots = listed
        # A pod of that name may have been here before, and its containers not have ended yet.
        for ghost in [claim for claim in claims if claim.sure and claim.uid not in here and claim.slots]:
            if ghost.container == container and ghost.slots < slots:
                new.add(ghost)
                slots -= ghost.slots
        before = claims.holder_of(slots)
        if seeker is None or want is None or len(slots) != want.amount or (before and _is_of_another(before, here)):
            strangers.append(holder)
            if before is None:
                told, parts, maybe = _by_slots(slots, device_of, any_of)
                before = Claim("", container, slots, told, now_s, parts=parts, maybe=maybe)
            uid = before.uid if before.sure and before.uid not in here and before.uid else f"{namespace}/{pod}"
            new.add(replace(before, uid=uid, container=container, slots=slots, init=False, sure=True))
            continue
        claim = Claim(seeker.uid, container, slots, (), now_s, init=want.init, sure=True)
        if before is not None:
            claim = replace(claim, at_s=before.at_s, words=before.words, devices=before.devices, parts=before.parts)
        if before is None or before.maybe:
            told, parts, maybe = _told(seeker, want, _devices(slots, device_of), seekers, any_of)
            if not told:
                told, parts, maybe = _by_slots(slots, device_of, any_of)
            claim = replace(claim, devices=told, parts=parts, maybe=maybe)
        new.add(claim)
    return strangers


def _is_of_another(claim: Claim, here: set[str]) -> bool:
    """Whether the kubelet had confirmed it for a pod that the API server does not know any more."""
    return claim.sure and claim.uid not in here and "/" not in claim.uid


def _devices(slots: frozenset[SlotId], device_of: Mapping[SlotId, DeviceId]) -> tuple[DeviceId, ...]:
    return tuple(sorted({device_of[slot] for slot in slots if slot in device_of}))


def _by_slots(slots: frozenset[SlotId], device_of: Mapping[SlotId, DeviceId], any_of: Sequence[DeviceId]) -> Known:
    """What a container was told that nothing else speaks of. `any_of`: where slots do not say it, all there are."""
    found = _devices(slots, device_of)
    return (found, (), ()) if len(found) == 1 and not any_of else ((), (), tuple(any_of or found))


def _is_foreign(
    claims: Claims, by_name: Mapping[tuple[str, str], Seeker], held: Held, device_of: Mapping[SlotId, DeviceId]
) -> bool:
    """Whether some container has slots of another device than it was told.

    Plugins that this one replaces do not look at the ids. Where their pods have taken the slots of a device, ours get
    slots of another one. So here ids do not say which device a container has.
    """
    for (namespace, pod, container), slots in held.items():
        seeker, before = by_name.get((namespace, pod)), claims.holder_of(slots)
        want = seeker.want(container) if seeker is not None else None
        if before is not None and not before.maybe:
            told = before.devices
        elif seeker is not None and want is not None and (container in seeker.actual or not seeker.open):
            told = seeker.actual.get(container, (want.devices, ()))[0]
        else:
            continue
        if told and set(told) != set(_devices(slots, device_of)):
            return True
    return False


def _told(
    seeker: Seeker, want: Want, found: tuple[DeviceId, ...], seekers: Sequence[Seeker], any_of: Sequence[DeviceId]
) -> Known:
    """What a container was told before we were started. No devices: it was promised nothing.

    What an earlier daemon wrote about it is the truth. One that is marked was told what its annotation says, by that
    daemon or another plugin. One that is not marked yet was served by an earlier daemon of ours, which chose slots of
    the device that it told, unless there were none: then it is known only if both agree, or if there is a pod that it
    must have been taken for. `any_of`: where slots do not say it, all devices there are.
    """
    if (actual := seeker.actual.get(want.container)) is not None:
        return (*actual, ())
    if not seeker.open or not want.devices or set(found) == set(want.devices):
        return want.devices, want.parts, ()
    alike = any(
        (other.amount, set(other.devices)) == (want.amount, set(found))
        for rival in seekers
        if rival.uid != seeker.uid
        for other in rival.wants
    )
    if alike and not any_of and len(found) == len(want.devices):
        return found, (), ()
    return want.devices, want.parts, tuple(device for device in any_of or found if device not in want.devices)


# --- What it does not show --------------------------------------------------------------------------------------------


def _is_over(claim: Claim, seeker: Seeker, now_s: float, grace_s: float) -> bool:
    """What was confirmed once is kept until the API server says that the pod ends: a kubelet may forget."""
    if claim.sure:
        return seeker.pod.deleting
    return now_s - claim.at_s > grace_s


def _goes_on(claim: Claim, claims: Claims, now_s: float) -> bool:
    """Whether it is of the admission that may still be under way."""
    return not claim.sure and claim.uid == claims.latest and now_s - claim.at_s <= GRACE_S


def _keep_init(
    claim: Claim, owner: Claim | None, here: Mapping[str, Seeker], new: Claims, now_s: float
) -> Claim | None:
    """The kubelet does not list init containers. Who has their slots afterwards is the pod that they belong to."""
    if owner is None or owner.uid == claim.uid:
        seeker = here.get(claim.uid)
        if seeker is None:
            return None
        begun = seeker.pod.phase != "Pending" or now_s - claim.at_s > GRACE_S
        return replace(claim, sure=begun or any(other.sure for other in new.of(claim.uid)))
    seeker = here.get(owner.uid)
    wants = seeker.wants if seeker is not None else ()
    moved = next(
        (w for w in wants if w.init and w.amount == claim.amount and (owner.uid, w.container) not in new), None
    )
    return replace(claim, uid=owner.uid, container=moved.container, sure=True) if moved is not None else None


def _hand_over(claim: Claim, claims: Claims, seekers: Sequence[Seeker], new: Claims) -> None:
    """Given to a pod that has other slots, as is seen now. So it is for the one whose slots that pod has."""
    for seeker in seekers:
        for want in seeker.wants:
            key = (seeker.uid, want.container)
            if key in claims and key not in new and want.amount == claim.amount:
                new.add(replace(claim, uid=seeker.uid, container=want.container, init=want.init, sure=False))
                return


def _is_complete(seeker: Seeker, claims: Claims, now_s: float) -> bool:
    """Whether the kubelet has confirmed all that it lists. It does not list init containers."""
    found = [claim for want in seeker.wants if (claim := claims.get((seeker.uid, want.container))) is not None]
    lasting = [claim for claim in found if not claim.init]
    if any(not want.init for want in seeker.wants):
        # An init container that an earlier daemon served is not known any more.
        return len(lasting) == sum(not want.init for want in seeker.wants) and all(claim.sure for claim in lasting)
    ended = seeker.pod.phase != "Pending" or all(now_s - claim.at_s > GRACE_S for claim in found)
    return len(found) == len(seeker.wants) and ended
