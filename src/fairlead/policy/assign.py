"""Assignment: which pending pod a question of the kubelet is for, and which device that pod was promised.

The kubelet names neither pod nor container; it says how many units it needs. It admits one pod after the other, and the
containers of a pod in their order, init containers first. So the question is for, in this order: the pod whose init
container has the very slots that are asked for again; the pod whose admission is under way; the pod that was promised
its device first. Pure: knows nothing of where pods come from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any

from msgspec import Struct

from fairlead.model.assign import Assign
from fairlead.model.errors import InvalidQuantity, some
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.pod import Container, Pod
from fairlead.model.quantity import AMOUNT_MAX, parse_quantity
from fairlead.model.resource import Slot
from fairlead.policy.claims import Claims

NEVER = 2**64  # later than any time that can be written
TIME_DIGITS_MAX = 20
TEXT_MAX = 4096  # a longer list of devices is no list of devices


class Want(Struct, frozen=True):
    """What one container asks for, and where it shall have it."""

    container: str
    amount: int
    devices: tuple[DeviceId, ...] = ()
    init: bool = False  # it ends before the others begin, and they use its slots again


class Fault(Struct, frozen=True):
    """Why a pod cannot be served. `later`: somebody may still write what is missing."""

    text: str
    later: bool = False


class Seeker(Struct, frozen=True):
    """A pod that asks for the resource. Its wants are in the order in which the kubelet asks for them."""

    pod: Pod
    wants: tuple[Want, ...]
    order: tuple[int, float, str, str]
    open: bool = True  # the scheduler's annotations do not say that it has its devices
    fault: Fault | None = None

    @property
    def uid(self) -> str:
        return self.pod.uid

    @property
    def units(self) -> int:
        """What it asks for while it runs."""
        return sum(want.amount for want in self.wants if not want.init)

    def want(self, container: str) -> Want | None:
        return next((want for want in self.wants if want.container == container), None)

    def next(self, claims: Claims) -> Want | None:
        """What the kubelet will ask for next, if it admits this pod."""
        return next((want for want in self.wants if (self.pod.uid, want.container) not in claims), None)


class Match(Struct, frozen=True):
    seeker: Seeker
    want: Want
    rivals: tuple[Seeker, ...] = ()  # they ask for as much, of other devices


class Miss(Struct, frozen=True):
    """No pod, and why. `later`: it may be otherwise in a moment."""

    reason: str
    later: bool = True


# --- Reading a pod ----------------------------------------------------------------------------------------------------


def read_pod(
    pod: Pod, resource: ResourceName, assign: Assign, names: Mapping[str, DeviceId], promised: str | None = None
) -> Seeker | None:
    """None if the pod asks for nothing of this. `names`: devices as annotations name them.

    `promised` goes before the pod's own word: what it will say as soon as we have written it.
    """
    faults: list[Fault] = []
    order = (_time(pod, assign, faults), pod.created_s, pod.namespace, pod.name)
    devices: tuple[DeviceId, ...] = ()
    text = pod.annotations.get(assign.device, "") if promised is None else promised
    each = pod.annotations.get(assign.per_container, "") if assign.per_container else ""
    by_number: Mapping[int, tuple[DeviceId, ...]] = {}
    if each:
        by_number = _each(each, assign, names, faults)
    else:
        devices = _devices(text, assign, names, faults)
    wants = []
    for container, number in _containers(pod):
        amount = _amount(container, resource, faults)
        if not amount:
            continue
        where = by_number.get(number, ()) if each else devices
        if each and not where and number >= 0:
            faults.append(Fault(f"annotation {assign.per_container} names no device for container {container.name}"))
        wants.append(Want(container.name, amount, where, init=number < 0 and not container.sidecar))
    if not wants:
        return None
    faults += [
        Fault(f"its annotation {key} is not there", later=True) for key in assign.needs if not pod.annotations.get(key)
    ]
    said = pod.annotations.get(assign.assigned, "") if assign.assigned else ""
    is_open = not assign.assigned or said in assign.unassigned
    if not is_open and not said:
        faults.append(Fault(f"its annotation {assign.assigned} is not there", later=True))
        is_open = True
    # What nobody will mend by waiting is told first.
    first = min(faults, key=lambda fault: fault.later, default=None)
    return Seeker(pod, tuple(wants), order, open=is_open and not pod.deleting, fault=first)


def _containers(pod: Pod) -> Iterable[tuple[Container, int]]:
    """In the kubelet's order, with the number that people count containers by; init containers have none."""
    yield from ((container, -1) for container in pod.init_containers)
    yield from ((container, number) for number, container in enumerate(pod.containers))


def _amount(container: Container, resource: ResourceName, faults: list[Fault]) -> int:
    text = container.limits.get(resource) or container.requests.get(resource) or "0"
    try:
        number, parts = parse_quantity(text)
    except InvalidQuantity as error:
        faults.append(Fault(f"container {container.name}: {error}"))
        return 0
    amount = -(-number // parts)  # rounded up, as Kubernetes does
    if not 0 <= amount <= AMOUNT_MAX:
        faults.append(Fault(f"container {container.name}: amount {text!r:.40} is out of range"))
        return 0
    return amount


def _time(pod: Pod, assign: Assign, faults: list[Fault]) -> int:
    """A time that cannot be read is the latest: who is written wrongly does not go before others."""
    text = pod.annotations.get(assign.time, "") if assign.time else ""
    if text.isascii() and text.isdigit() and len(text) <= TIME_DIGITS_MAX:
        return int(text)
    if not text and assign.time_required:
        faults.append(Fault(f"its annotation {assign.time} is not there", later=True))
    return NEVER


def _devices(text: str, assign: Assign, names: Mapping[str, DeviceId], faults: list[Fault]) -> tuple[DeviceId, ...]:
    if not text:
        faults.append(Fault(f"its annotation {assign.device} is not there", later=True))
        return ()
    if len(text) > TEXT_MAX:
        faults.append(Fault(f"its annotation {assign.device} has {len(text)} characters"))
        return ()
    found = []
    for word in (part.strip() for part in text.split(",")):
        device = names.get(word)
        if device is None:
            known = some(sorted(names)) or "none"
            faults.append(Fault(f"its annotation {assign.device} names {word!r:.60}; this node has {known}"))
            return ()
        if device not in found:
            found.append(device)
    return tuple(found)


def _each(
    text: str, assign: Assign, names: Mapping[str, DeviceId], faults: list[Fault]
) -> dict[int, tuple[DeviceId, ...]]:
    """{"0": {"1": 4}}: container 0 has 4 units of device 1."""
    wrong = Fault(f"its annotation {assign.per_container} is not JSON of the form {{container: {{device: units}}}}")
    try:
        raw: Any = json.loads(text) if len(text) <= TEXT_MAX else None
        parts = {int(number): tuple(spread.keys()) for number, spread in raw.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        faults.append(wrong)
        return {}
    unknown = sorted({word for words in parts.values() for word in words if word not in names})
    if unknown:
        known = some(sorted(names)) or "none"
        faults.append(Fault(f"its annotation {assign.per_container} names {unknown[0]!r:.60}; this node has {known}"))
        return {}
    return {number: tuple(names[word] for word in words) for number, words in parts.items()}


# --- Matching ---------------------------------------------------------------------------------------------------------


def match(seekers: Sequence[Seeker], claims: Claims, amount: int, slots: Iterable[SlotId] = ()) -> Match | Miss:
    """`seekers` in their order. `slots`: those that the container will have in any case."""
    first = _again(seekers, claims, amount, slots) or _under_way(seekers, claims, amount)
    if first is not None:
        return first
    found: list[tuple[Seeker, Want]] = []
    faulty: list[Seeker] = []
    for seeker in seekers:
        if not seeker.open:
            continue
        want = seeker.next(claims)
        if want is None or want.amount != amount:
            continue
        if seeker.fault is None:
            found.append((seeker, want))
        else:
            faulty.append(seeker)
    if found:
        seeker, want = found[0]
        rivals = tuple(other for other, its in found[1:] if its.devices != want.devices)
        return Match(seeker, want, rivals)
    if faulty:
        told = some([f"{seeker.pod}: {seeker.fault.text}" for seeker in faulty if seeker.fault], 3)
        return Miss(told, later=any(seeker.fault and seeker.fault.later for seeker in faulty))
    others = [f"{seeker.pod} asks for {want.amount}" for seeker in seekers if (want := seeker.next(claims))]
    return Miss(f"no pod asks for {amount}" + (f"; {some(others, 3)}" if others else ""))


def _again(seekers: Sequence[Seeker], claims: Claims, amount: int, slots: Iterable[SlotId]) -> Match | None:
    claim = next((claim for slot in slots if (claim := claims.holder(slot)) is not None), None)
    if claim is None or not claim.init:
        return None  # slots that were given back meanwhile: nobody has told us yet
    return _next_of(claim.uid, seekers, claims, amount)


def _under_way(seekers: Sequence[Seeker], claims: Claims, amount: int) -> Match | None:
    return _next_of(claims.latest, seekers, claims, amount) if claims.latest else None


def _next_of(uid: str, seekers: Sequence[Seeker], claims: Claims, amount: int) -> Match | None:
    seeker = next((seeker for seeker in seekers if seeker.pod.uid == uid), None)
    want = seeker.next(claims) if seeker is not None else None
    if seeker is None or want is None or want.amount != amount or seeker.fault is not None or not seeker.open:
        return None
    return Match(seeker, want)


def check_room(want: Want, claims: Claims, room: Mapping[DeviceId, int]) -> Miss | None:
    """A promise that the device cannot keep: whoever made it has counted otherwise than the kubelet."""
    if not want.devices:
        return None
    each = -(-want.amount // len(want.devices))
    for device in want.devices:
        used = claims.load(device)
        if used + each > room.get(device, 0):
            has = f"{device} has {room.get(device, 0)}, and pods hold {used} of them"
            return Miss(f"{each} units do not fit: {has}")
    return None


def choose_slots(
    want: Want,
    slots_of: Mapping[DeviceId, Sequence[Slot]],
    free: AbstractSet[SlotId],
    must: Sequence[SlotId],
    *,
    strict: bool,
) -> tuple[SlotId, ...]:
    """Slots of the promised devices, filled one after the other; in need, and unless strict, slots of others.

    Empty: there are not enough.
    """
    chosen = list(must)
    taken = set(must)
    for device in (*want.devices, *(() if strict else sorted(slots_of.keys() - set(want.devices)))):
        lack = want.amount - len(chosen)
        if lack <= 0:
            break
        mine = (slot.id for slot in slots_of.get(device, ()) if slot.id in free and slot.id not in taken)
        chosen += islice(mine, lack)
    return tuple(chosen) if len(chosen) >= want.amount else ()
