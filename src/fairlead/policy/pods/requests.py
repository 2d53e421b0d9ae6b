"""Requests: what a pod asks for of one resource, container by container, as the kubelet counts it.

A pod may say anything: what cannot be read is a fault of that pod, and of no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from fairlead.model.errors import InvalidQuantity
from fairlead.model.names import DeviceId
from fairlead.model.pod import Container, Pod
from fairlead.model.quantity import AMOUNT_MAX, parse_quantity


class Fault(Struct, frozen=True):
    """Why a pod cannot be served. `later`: what is missing may still be written. `absent`: it was assigned nothing."""

    text: str
    later: bool = False
    absent: bool = False


class ContainerRequest(Struct, frozen=True):
    """What one container asks for, and where it shall have it."""

    container: str
    amount: int
    devices: tuple[DeviceId, ...] = ()
    init: bool = False  # it ends before the others begin, and they use its slots again
    number: int = -1  # as people count containers; init containers have none
    parts: tuple[int, ...] = ()  # units of each device; empty: equal parts


def read_requests(pod: Pod, resource: str, faults: list[Fault]) -> tuple[ContainerRequest, ...]:
    """Of the containers that ask for something, in the order in which the kubelet serves them."""
    return tuple(_requests(pod, resource, faults))


def _requests(pod: Pod, resource: str, faults: list[Fault]) -> Iterator[ContainerRequest]:
    for container in pod.init_containers:
        if amount := _amount(container, resource, faults):
            yield ContainerRequest(container.name, amount, init=not container.sidecar)
    for number, container in enumerate(pod.containers):
        if amount := _amount(container, resource, faults):
            yield ContainerRequest(container.name, amount, number=number)


def _amount(container: Container, resource: str, faults: list[Fault]) -> int:
    """Rounded up, as Kubernetes does."""
    text = container.limits.get(resource) or container.requests.get(resource)
    if not text:
        return 0
    try:
        number, parts = parse_quantity(text)
    except InvalidQuantity as error:
        faults.append(Fault(f"container {container.name}: {resource}: {error}"))
        return 0
    amount = -(-number // parts)
    if not 0 <= amount <= AMOUNT_MAX:
        faults.append(Fault(f"container {container.name}: {resource}: amount {text!r:.40} is out of range"))
        return 0
    return amount


def share(units: int, devices: Sequence[DeviceId], parts: Sequence[int] = ()) -> dict[DeviceId, int]:
    """How many units lie on each device that a container was given. `parts`: as written, where that makes the sum."""
    if len(parts) == len(devices) and sum(parts) == units:
        return dict(zip(devices, parts, strict=True))
    each, more = divmod(units, max(1, len(devices)))
    return {device: each + (number < more) for number, device in enumerate(devices)}


def footprint(requests: Iterable[ContainerRequest], by_container: Iterable[Sequence[DeviceId]]) -> dict[DeviceId, int]:
    """What a pod takes of each device at most: init containers one after the other, beside the sidecars before them."""
    lasting: dict[DeviceId, int] = {}
    most: dict[DeviceId, int] = {}
    for request, devices in zip(requests, by_container, strict=True):
        for device, units in share(request.amount, devices, request.parts).items():
            now = lasting.get(device, 0) + units
            most[device] = max(most.get(device, 0), now)
            if not request.init:
                lasting[device] = now
    return most


def total(requests: Sequence[ContainerRequest]) -> int:
    """What a pod takes at most, wherever that is."""
    if len(requests) == 1:
        return requests[0].amount
    return footprint(requests, [("",)] * len(requests)).get("", 0)
