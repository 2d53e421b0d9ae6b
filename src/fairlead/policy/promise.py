"""Promises: what a pod asks for, container by container, and which devices its annotations promise to each.

A pod may say anything: what cannot be read is a fault of that pod, and of no other. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.assign import Assign
from fairlead.model.errors import InvalidQuantity, some
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.pod import Container, Pod
from fairlead.model.quantity import AMOUNT_MAX, parse_quantity
from fairlead.policy.claims import Claim, Claims, share

TIME_DIGITS_MAX = 20
NEVER: int = 10**TIME_DIGITS_MAX  # later than any time that can be written
TEXT_MAX = 4096  # a longer list of devices is no list of devices
Told = tuple[tuple[DeviceId, ...], tuple[int, ...]]  # devices, and units of each; no units: equal parts
WAITS = frozenset({"", "Pending"})  # phases of a pod that may still be admitted


class Form(Enum):
    """What the promise of a pod looks like."""

    ONE = "one"  # every container has the same devices
    EACH = "each"  # each container has its own, in JSON
    ROW = "row"  # whole devices, so many for the first container, then so many for the next


class Want(Struct, frozen=True):
    """What one container asks for, and where it shall have it."""

    container: str
    amount: int
    devices: tuple[DeviceId, ...] = ()
    init: bool = False  # it ends before the others begin, and they use its slots again
    number: int = -1  # as people count containers; init containers have none
    parts: tuple[int, ...] = ()  # units of each device; empty: equal parts


class Fault(Struct, frozen=True):
    """Why a pod cannot be served. `later`: what is missing may still be written. `absent`: it was promised nothing."""

    text: str
    later: bool = False
    absent: bool = False


class Seeker(Struct, frozen=True, dict=True):
    """A pod that asks for the resource. Its wants are in the order in which the kubelet asks for them."""

    pod: Pod
    wants: tuple[Want, ...]
    order: tuple[int, float, int, str, str]
    open: bool = True  # the scheduler's annotations do not say that it has its devices
    fault: Fault | None = None
    form: Form = Form.ONE
    actual: Mapping[str, Told] = {}  # by container: what it was told, where that is not what it was promised

    @cached_property
    def amounts(self) -> frozenset[int]:
        """What its containers ask for: most pods are told apart from a question by this alone."""
        return frozenset(want.amount for want in self.wants)

    @property
    def uid(self) -> str:
        return self.pod.uid

    @property
    def units(self) -> int:
        """What it asks for while it runs."""
        return sum(want.amount for want in self.wants if not want.init)

    @property
    def shape(self) -> tuple[tuple[int, bool], ...]:
        """Pods of one shape cannot be told apart by what the kubelet asks for."""
        return tuple((want.amount, want.init) for want in self.wants)

    @property
    def plan(self) -> tuple[tuple[DeviceId, ...], ...]:
        """Where each container shall have its units."""
        return tuple(want.devices for want in self.wants)

    @property
    def told(self) -> tuple[tuple[DeviceId, ...], ...]:
        """What its containers were told, as far as its annotations say."""
        return tuple(self.actual.get(want.container, (want.devices, ()))[0] for want in self.wants)

    def want(self, container: str) -> Want | None:
        return next((want for want in self.wants if want.container == container), None)

    def next(self, claims: Claims) -> Want | None:
        """What the kubelet will ask for next, if it admits this pod. For one that has begun to run it asks no more."""
        if self.pod.phase not in WAITS:
            return None
        uid = self.pod.uid
        found: Want | None = None
        for want in reversed(self.wants):
            if (uid, want.container) not in claims:
                found = want
            elif not want.init:
                break  # it asks for its containers in order: those before have had theirs, before us perhaps
        return found

    def footprint(self, plan: Sequence[Sequence[DeviceId]]) -> dict[DeviceId, int]:
        """What it takes of each device under a plan: init containers one after the other, the rest at once."""
        lasting: dict[DeviceId, int] = {}
        first: dict[DeviceId, int] = {}
        for want, devices in zip(self.wants, plan, strict=True):
            for device, units in share(want.amount, devices, want.parts).items():
                if want.init:
                    first[device] = max(first.get(device, 0), units)
                else:
                    lasting[device] = lasting.get(device, 0) + units
        return {device: max(lasting.get(device, 0), first.get(device, 0)) for device in lasting.keys() | first.keys()}


def read_pod(
    pod: Pod, resource: ResourceName, assign: Assign, names: Mapping[str, DeviceId], *, whole: bool = False
) -> Seeker | None:
    """None if the pod asks for nothing of this. `names`: devices as annotations name them.

    `whole`: a unit is a whole device, so a container of two units has two of them.
    """
    faults: list[Fault] = []
    # The kubelet sorts pods that it learns of together by their creation, to the second.
    order = (pod.arrived, pod.created_s, _time(pod, assign, faults), pod.namespace, pod.name)
    wants = tuple(_wants(pod, resource, faults))
    if not wants:
        return None
    form = Form.ONE
    if assign.per_container and (each := pod.annotations.get(assign.per_container)):
        form = Form.EACH
        wants = _fill_each(wants, each, assign, names, faults)
    else:
        devices = _devices(pod.annotations.get(assign.device, ""), assign, names, faults)
        if whole and 1 < len(devices) == sum(want.amount for want in wants if not want.init) and len(wants) > 1:
            form = Form.ROW
        wants = _fill_row(wants, devices) if form is Form.ROW else _fill(wants, devices)
    # Where units are whole devices each container has as many devices as units; else each device has a unit at least.
    faults += [
        Fault(
            f"{len(want.devices)} devices are named for container {want.container}, which asks for {want.amount}. "
            "Name as many as it asks for"
        )
        for want in wants
        if want.devices and (len(want.devices) != want.amount if whole else len(want.devices) > want.amount)
    ]
    faults += [
        Fault(f"its annotation {key} is not there", later=True) for key in assign.needs if not pod.annotations.get(key)
    ]
    said = pod.annotations.get(assign.assigned, "") if assign.assigned else ""
    is_open = not assign.assigned or said in assign.unassigned
    if not is_open and not said:
        faults.append(_lacks(assign.assigned, assign))
        is_open = True
    # What no wait will mend is told first, and what is written wrongly before what is not written.
    first = min(faults, key=lambda fault: (fault.later, fault.absent), default=None)
    actual = read_actual(pod.annotations.get(assign.actual, ""), wants, names) if assign.actual else {}
    return Seeker(pod, wants, order, is_open and not pod.deleting, first, form, actual)


def write_plan(
    seeker: Seeker, plan: Sequence[Sequence[DeviceId]], assign: Assign, words: Mapping[DeviceId, str]
) -> dict[str, str] | None:
    """The annotations that promise it. None if they cannot: the form has no words for it, or a device has no name."""
    if any(device not in words for devices in plan for device in devices):
        return None
    if seeker.form is Form.EACH:
        spread = {
            str(want.number): {words[d]: units for d, units in share(want.amount, devices, want.parts).items()}
            for want, devices in zip(seeker.wants, plan, strict=True)
            if want.number >= 0
        }
        texts = {assign.per_container: json.dumps(spread, separators=(",", ":"))}
        if seeker.pod.annotations.get(assign.device):
            texts[assign.device] = ",".join(dict.fromkeys(words[device] for devices in plan for device in devices))
        return texts
    if seeker.form is Form.ONE:
        return {assign.device: ",".join(words[device] for device in plan[0])} if len(set(plan)) == 1 else None
    row = [device for want, devices in zip(seeker.wants, plan, strict=True) if not want.init for device in devices]
    if len(set(row)) < len(row) or _fill_row(seeker.wants, row) != _with(seeker.wants, plan):
        return None
    return {assign.device: ",".join(words[device] for device in row)}


# --- Containers and amounts -------------------------------------------------------------------------------------------


def _wants(pod: Pod, resource: ResourceName, faults: list[Fault]) -> Iterable[Want]:
    """In the kubelet's order."""
    for container in pod.init_containers:
        if amount := _amount(container, resource, faults):
            yield Want(container.name, amount, init=not container.sidecar)
    for number, container in enumerate(pod.containers):
        if amount := _amount(container, resource, faults):
            yield Want(container.name, amount, number=number)


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


def _lacks(key: str, assign: Assign) -> Fault:
    return Fault(f"its annotation {key} is not there", later=assign.after_bind, absent=True)


def _time(pod: Pod, assign: Assign, faults: list[Fault]) -> int:
    """A time that cannot be read is the latest: who is written wrongly does not go before others."""
    text = pod.annotations.get(assign.time, "") if assign.time else ""
    if text.isascii() and text.isdigit() and len(text) <= TIME_DIGITS_MAX:
        return int(text)
    if not text and assign.time_required:
        faults.append(_lacks(assign.time, assign))
    return NEVER


# --- Devices ----------------------------------------------------------------------------------------------------------


def _with(wants: Sequence[Want], plan: Sequence[Sequence[DeviceId]]) -> tuple[Want, ...]:
    return tuple(replace(want, devices=tuple(devices)) for want, devices in zip(wants, plan, strict=True))


def _fill(wants: Sequence[Want], devices: tuple[DeviceId, ...]) -> tuple[Want, ...]:
    return _with(wants, [devices] * len(wants))


def _fill_row(wants: Sequence[Want], devices: Sequence[DeviceId]) -> tuple[Want, ...]:
    plan, at = [], 0
    for want in wants:
        start = 0 if want.init else at
        plan.append(devices[start : start + want.amount])
        at += 0 if want.init else want.amount
    return _with(wants, plan)


def _devices(text: str, assign: Assign, names: Mapping[str, DeviceId], faults: list[Fault]) -> tuple[DeviceId, ...]:
    if not text:
        faults.append(_lacks(assign.device, assign))
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


def _fill_each(
    wants: Sequence[Want], text: str, assign: Assign, names: Mapping[str, DeviceId], faults: list[Fault]
) -> tuple[Want, ...]:
    """{"0": {"1": 4}}: container 0 has 4 units of device 1."""
    key = assign.per_container
    try:
        raw: Any = json.loads(text) if len(text) <= TEXT_MAX else None
        parts = {int(number): {word: _units(units) for word, units in spread.items()} for number, spread in raw.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        faults.append(Fault(f"its annotation {key} is not JSON of the form {{container: {{device: units}}}}"))
        return _fill(wants, ())
    unknown = sorted({word for spread in parts.values() for word in spread if word not in names})
    if unknown:
        known = some(sorted(names)) or "none"
        faults.append(Fault(f"its annotation {key} names {unknown[0]!r:.60}; this node has {known}"))
        return _fill(wants, ())
    # No scheduler counts init containers: theirs is the first device that the pod has.
    first = next((names[word] for number in sorted(parts) if number >= 0 for word in parts[number]), None)
    filled = []
    for want in wants:
        spread = parts.get(want.number, {}) if want.number >= 0 else {}
        devices, units = tuple(names[word] for word in spread), tuple(spread.values())
        if want.number < 0 and first is not None:
            devices, units = (first,), ()
        if not devices:
            faults.append(Fault(f"its annotation {key} names no device for container {want.container}"))
        elif units and sum(units) != want.amount:
            told = f"gives container {want.container} {sum(units)} units, which asks for {want.amount}"
            faults.append(Fault(f"its annotation {key} {told}"))
        filled.append(replace(want, devices=devices, parts=units if len(units) > 1 else ()))
    return tuple(filled)


def _units(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= AMOUNT_MAX:
        raise ValueError(value)
    return value


# --- What pods have in truth ------------------------------------------------------------------------------------------


def read_actual(text: str, wants: Sequence[Want], names: Mapping[str, DeviceId]) -> dict[str, Told]:
    """What we wrote on a pod that has other devices than it was promised. What cannot be read is left out."""
    try:
        raw: Any = json.loads(text) if 0 < len(text) <= TEXT_MAX else {}
        spreads = {name: {names[word]: _units(units) for word, units in spread.items()} for name, spread in raw.items()}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return {}
    amounts = {want.container: want.amount for want in wants}
    return {
        name: (tuple(spread), tuple(spread.values()) if len(spread) > 1 else ())
        for name, spread in spreads.items()
        if sum(spread.values()) == amounts.get(name)
    }


def write_actual(claims: Iterable[Claim], words: Mapping[DeviceId, str]) -> str:
    """{"main": {"1": 4}}: container main has 4 units of device 1."""
    spreads = {
        claim.container: {
            words.get(device, device): units
            for device, units in share(claim.amount, claim.devices, claim.parts).items()
        }
        for claim in claims
    }
    return json.dumps(spreads, separators=(",", ":"), sort_keys=True)
