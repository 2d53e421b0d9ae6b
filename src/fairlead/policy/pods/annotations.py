"""Annotations: which devices they assign to each container of a pod, and how that is written.

Two forms: names of devices with commas between them, for all containers; JSON, {container: {device: units}}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.names import DeviceId
from fairlead.model.pod import Pod
from fairlead.model.quantity import AMOUNT_MAX
from fairlead.policy.pods.contract import Contract
from fairlead.policy.pods.requests import ContainerRequest, Fault, footprint, read_requests, share, total

TEXT_MAX = 4096  # a longer list of devices is no list of devices
Names = Mapping[str, DeviceId]  # devices as annotations name them
Share = tuple[tuple[DeviceId, ...], tuple[int, ...]]  # devices, and units of each; no units: equal parts
Spreads = dict[str, dict[str, int]]  # {container: {device: units}}


class Form(Enum):
    """How annotations assign devices to the containers of a pod."""

    ONE = "one"  # every container has the same devices
    EACH = "each"  # each container has its own, in JSON
    ROW = "row"  # whole devices, so many for the first container, then so many for the next


class Keys(Struct, frozen=True):
    """The annotations that assign."""

    device: str
    per_container: str = ""  # goes before `device`
    known: str = ", which the node does not have"  # behind the name of a device that is not known


class Taken(Struct, frozen=True):
    """What a pod has of each device, as its annotations say."""

    units: Mapping[DeviceId, int]
    nowhere: int = 0  # units of containers whose device is not known
    fault: Fault | None = None  # `absent`: it says nothing


def lacks(key: str) -> Fault:
    return Fault(f"its annotation {key} is not there", absent=True)


# --- Reading ----------------------------------------------------------------------------------------------------------


def read_assignment(
    pod: Pod, requests: Sequence[ContainerRequest], keys: Keys, names: Names, faults: list[Fault], *, whole: bool
) -> tuple[Form, tuple[ContainerRequest, ...]]:
    """The requests with their devices; without, where that cannot be read.

    `whole`: a unit is a whole device, so a container of two units has two of them.
    """
    if keys.per_container and (each := pod.annotations.get(keys.per_container)):
        form, filled = Form.EACH, _assign_each(requests, each, keys, names, faults)
    else:
        devices = _devices(pod.annotations.get(keys.device, ""), keys, names, faults)
        lasting = sum(request.amount for request in requests if not request.init)
        form = Form.ROW if whole and 1 < len(devices) == lasting and len(requests) > 1 else Form.ONE
        filled = _assign_row(requests, devices) if form is Form.ROW else _with(requests, [devices] * len(requests))
    # Where units are whole devices each container has as many devices as units; else each device has a unit at least.
    for request in filled:
        named, asked = len(request.devices), request.amount
        if named and (named != asked if whole else named > asked):
            what = f"{named} devices are named for container {request.container}, which asks for {asked}"
            faults.append(Fault(f"{what}. Name as many as it asks for"))
    return form, filled


def read_taken(pod: Pod, contract: Contract, names: Names) -> Taken:
    """For those who count what pods have. Containers have what they ask for, whatever is written beside it.

    Of several annotations the first counts that can be read: a plugin may know only the older one.
    """
    faults: list[Fault] = []
    filled = requests = read_requests(pod, contract.resource, faults)
    written = [key for key in (contract.per_container, *contract.also_read) if pod.annotations.get(key)]
    for key in (*written, ""):
        keys = Keys(contract.device, key)
        _, filled = read_assignment(pod, requests, keys, names, faults, whole=contract.whole)
        if any(request.devices for request in filled):
            break
    if contract.actual and (text := pod.annotations.get(contract.actual)):
        actual = read_actual(text, filled, names)
        pairs = [(one, actual.get(one.container, (one.devices, one.parts))) for one in filled]
        filled = tuple(replace(one, devices=devices, parts=parts) for one, (devices, parts) in pairs)
    units = footprint(filled, [request.devices for request in filled])
    nowhere = total([request for request in filled if not request.devices])
    return Taken(units, nowhere, min(faults, key=lambda fault: fault.absent, default=None))


def read_actual(text: str, requests: Sequence[ContainerRequest], names: Names) -> dict[str, Share]:
    """What was written on a pod that has other devices than it was assigned. What cannot be read is left out."""
    try:
        said = read_spreads(text).items()
        spreads = {name: {names[word]: units for word, units in spread.items()} for name, spread in said}
    except (ValueError, KeyError):
        return {}
    amounts = {request.container: request.amount for request in requests}
    return {
        name: (tuple(spread), tuple(spread.values()) if len(spread) > 1 else ())
        for name, spread in spreads.items()
        if sum(spread.values()) == amounts.get(name)
    }


def read_spreads(text: str) -> Spreads:
    """ValueError for anything but {container: {device: units}}."""
    try:
        raw: Any = json.loads(text) if len(text) <= TEXT_MAX else None
        return {name: {word: _units(units) for word, units in spread.items()} for name, spread in raw.items()}
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(text) from error


def _units(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= AMOUNT_MAX:
        raise ValueError(value)
    return value


def _with(
    requests: Sequence[ContainerRequest], by_container: Sequence[Sequence[DeviceId]]
) -> tuple[ContainerRequest, ...]:
    return tuple(
        replace(request, devices=tuple(devices)) for request, devices in zip(requests, by_container, strict=True)
    )


def _assign_row(requests: Sequence[ContainerRequest], devices: Sequence[DeviceId]) -> tuple[ContainerRequest, ...]:
    by_container, at = [], 0
    for request in requests:
        start = 0 if request.init else at
        by_container.append(devices[start : start + request.amount])
        at += 0 if request.init else request.amount
    return _with(requests, by_container)


def _devices(text: str, keys: Keys, names: Names, faults: list[Fault]) -> tuple[DeviceId, ...]:
    if not text:
        faults.append(lacks(keys.device))
        return ()
    if len(text) > TEXT_MAX:
        faults.append(Fault(f"its annotation {keys.device} has {len(text)} characters"))
        return ()
    found = []
    for word in (part.strip() for part in text.split(",")):
        device = names.get(word)
        if device is None:
            faults.append(Fault(f"its annotation {keys.device} names {word!r:.60}{keys.known}"))
            return ()
        if device not in found:
            found.append(device)
    return tuple(found)


def _assign_each(
    requests: Sequence[ContainerRequest], text: str, keys: Keys, names: Names, faults: list[Fault]
) -> tuple[ContainerRequest, ...]:
    """{"0": {"1": 4}}: container 0 has 4 units of device 1."""
    key = keys.per_container
    try:
        parts = {int(number): spread for number, spread in read_spreads(text).items()}
    except ValueError:
        faults.append(Fault(f"its annotation {key} is not JSON of the form {{container: {{device: units}}}}"))
        return tuple(requests)
    unknown = sorted({word for spread in parts.values() for word in spread if word not in names})
    if unknown:
        faults.append(Fault(f"its annotation {key} names {unknown[0]!r:.60}{keys.known}"))
        return tuple(requests)
    # No scheduler counts init containers: theirs is the first device that the pod has.
    first = next((names[word] for number in sorted(parts) if number >= 0 for word in parts[number]), None)
    filled = []
    for request in requests:
        spread = parts.get(request.number, {}) if request.number >= 0 else {}
        devices, units = tuple(names[word] for word in spread), tuple(spread.values())
        if request.number < 0 and first is not None:
            devices, units = (first,), ()
        if not devices:
            faults.append(Fault(f"its annotation {key} names no device for container {request.container}"))
        elif units and sum(units) != request.amount:
            sums = f"gives container {request.container} {sum(units)} units, which asks for {request.amount}"
            faults.append(Fault(f"its annotation {key} {sums}"))
        filled.append(replace(request, devices=devices, parts=units if len(units) > 1 else ()))
    return tuple(filled)


# --- Writing ----------------------------------------------------------------------------------------------------------


def write_each(requests: Sequence[ContainerRequest], by_container: Sequence[Sequence[str]]) -> str:
    """JSON for these devices, by their names. Init containers have no number, and are left out."""
    pairs = zip(requests, by_container, strict=True)
    spreads = {str(one.number): share(one.amount, names, one.parts) for one, names in pairs if one.number >= 0}
    return write_spreads(spreads)


def write_all(form: Form, requests: Sequence[ContainerRequest], by_container: Sequence[Sequence[str]]) -> str | None:
    """Names with commas between them. None if that cannot express it."""
    if form is Form.EACH:
        return ",".join(dict.fromkeys(name for names in by_container for name in names))
    if form is Form.ONE:
        return ",".join(by_container[0]) if len(set(map(tuple, by_container))) == 1 else None
    pairs = zip(requests, by_container, strict=True)
    row = [name for request, names in pairs if not request.init for name in names]
    same = len(set(row)) == len(row) and _assign_row(requests, row) == _with(requests, by_container)
    return ",".join(row) if same else None


def write_spreads(spreads: Mapping[str, Mapping[str, int]]) -> str:
    return json.dumps(spreads, separators=(",", ":"))
