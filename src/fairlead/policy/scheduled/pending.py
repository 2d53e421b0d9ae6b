"""Pods that ask for a resource, in the order in which the kubelet asks, and whether they can be served. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.assign import Assign
from fairlead.model.errors import some
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.pod import Pod
from fairlead.policy.pods.annotations import (
    Form,
    Keys,
    Share,
    lacks,
    read_actual,
    read_assignment,
    write_all,
    write_each,
    write_spreads,
)
from fairlead.policy.pods.requests import ContainerRequest, Fault, footprint, read_requests, share
from fairlead.policy.scheduled.allocations import Allocation, Allocations

TIME_DIGITS_MAX = 20
NEVER: int = 10**TIME_DIGITS_MAX  # later than any time that can be written
WAITS = frozenset({"", "Pending"})  # phases of a pod that may still be admitted


class PendingPod(Struct, frozen=True, dict=True):
    """A pod that asks for the resource. Its requests are in the order in which the kubelet asks for them."""

    pod: Pod
    requests: tuple[ContainerRequest, ...]
    order: tuple[int, float, int, str, str]
    open: bool = True  # the scheduler's annotations do not say that it has its devices
    fault: Fault | None = None
    form: Form = Form.ONE
    actual: Mapping[str, Share] = {}  # by container: what it has, where that is not what it was assigned

    @cached_property
    def amounts(self) -> frozenset[int]:
        """What its containers ask for: most pods are ruled out for a question by this alone."""
        return frozenset(request.amount for request in self.requests)

    @property
    def uid(self) -> str:
        return self.pod.uid

    @property
    def units(self) -> int:
        """What it asks for while it runs."""
        return sum(request.amount for request in self.requests if not request.init)

    @property
    def shape(self) -> tuple[tuple[int, bool], ...]:
        """Pods of one shape cannot be distinguished by what the kubelet asks for."""
        return tuple((request.amount, request.init) for request in self.requests)

    @property
    def assigned(self) -> tuple[tuple[DeviceId, ...], ...]:
        """Where each container shall have its units."""
        return tuple(request.devices for request in self.requests)

    @property
    def actual_devices(self) -> tuple[tuple[DeviceId, ...], ...]:
        """What its containers have, as far as its annotations say."""
        return tuple(self.actual.get(request.container, (request.devices, ()))[0] for request in self.requests)

    def tells(self, container: str) -> bool:
        """Whether its annotations say which devices the container has."""
        return not self.open or container in self.actual

    def request(self, container: str) -> ContainerRequest | None:
        return next((request for request in self.requests if request.container == container), None)

    def next(self, allocations: Allocations) -> ContainerRequest | None:
        """What the kubelet will ask for next, if it admits this pod. For one that has begun to run it asks no more."""
        if self.pod.phase not in WAITS:
            return None
        uid = self.pod.uid
        found: ContainerRequest | None = None
        for request in reversed(self.requests):
            if (uid, request.container) not in allocations:
                found = request
            elif not request.init:
                break  # it asks for its containers in order: those before have had theirs, before us perhaps
        return found

    def footprint(self, by_container: Sequence[Sequence[DeviceId]]) -> dict[DeviceId, int]:
        """What it takes of each device with these devices."""
        return footprint(self.requests, by_container)


def read_pod(
    pod: Pod, resource: ResourceName, assign: Assign, names: Mapping[str, DeviceId], *, whole: bool = False
) -> PendingPod | None:
    """None if the pod asks for nothing of this. `names`: devices as annotations name them.

    `whole`: a unit is a whole device, so a container of two units has two of them.
    """
    faults: list[Fault] = []
    # The kubelet sorts pods that it learns of together by their creation, to the second.
    order = (pod.arrived, pod.created_s, _time(pod, assign, faults), pod.namespace, pod.name)
    requests = read_requests(pod, resource, faults)
    if not requests:
        return None
    keys = Keys(assign.device, assign.per_container, f"; this node has {some(sorted(names)) or 'none'}")
    form, requests = read_assignment(pod, requests, keys, names, faults, whole=whole)
    missing = [key for key in assign.needs if not pod.annotations.get(key)]
    faults += [Fault(f"its annotation {key} is not there", later=True) for key in missing]
    said = pod.annotations.get(assign.assigned, "") if assign.assigned else ""
    is_open = not assign.assigned or said in assign.unassigned
    if not is_open and not said:
        faults.append(lacks(assign.assigned))
        is_open = True
    faults = [replace(fault, later=assign.after_bind) if fault.absent else fault for fault in faults]
    # What no wait will mend comes first, and what is written wrongly before what is not written.
    first = min(faults, key=lambda fault: (fault.later, fault.absent), default=None)
    actual = read_actual(pod.annotations.get(assign.actual, ""), requests, names) if assign.actual else {}
    return PendingPod(pod, requests, order, is_open and not pod.deleting, first, form, actual)


def write_assignment(
    pending: PendingPod, by_container: Sequence[Sequence[DeviceId]], assign: Assign, names: Mapping[DeviceId, str]
) -> dict[str, str] | None:
    """The annotations that assign it. None if they cannot: the form cannot express it, or a device has no name."""
    if any(device not in names for devices in by_container for device in devices):
        return None
    named = [tuple(names[device] for device in devices) for devices in by_container]
    text = write_all(pending.form, pending.requests, named)
    if pending.form is not Form.EACH:
        return {assign.device: text} if text is not None else None
    texts = {assign.per_container: write_each(pending.requests, named)}
    if text and pending.pod.annotations.get(assign.device):
        texts[assign.device] = text
    return texts


def _time(pod: Pod, assign: Assign, faults: list[Fault]) -> int:
    """A time that cannot be read is the latest: who is written wrongly does not go before others."""
    text = pod.annotations.get(assign.time, "") if assign.time else ""
    if text.isascii() and text.isdigit() and len(text) <= TIME_DIGITS_MAX:
        return int(text)
    if not text and assign.time_required:
        faults.append(lacks(assign.time))
    return NEVER


def write_actual(allocations: Iterable[Allocation], names: Mapping[DeviceId, str]) -> str:
    """{"main": {"1": 4}}: container main has 4 units of device 1."""
    spreads = {
        each.container: {
            names.get(device, device): units for device, units in share(each.amount, each.devices, each.parts).items()
        }
        for each in allocations
    }
    return write_spreads(dict(sorted(spreads.items())))
