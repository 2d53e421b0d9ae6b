"""What NVIDIA's lists said after each event of a recording, and where ours says otherwise. Data and reading of it.

A list is written as one character per device, in the order of GPU, instance and replica: + healthy, - unhealthy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tests.vectors import Vector

Lists = Mapping[str, str]  # by resource
GPU = "nvidia.com/gpu"


class Otherwise(msgspec.Struct, frozen=True):
    """From this event on, until another line or to the end, ours lists this."""

    event: int
    lists: Lists
    difference: str


def _gpu(event: int, text: str, difference: str) -> Otherwise:
    return Otherwise(event, {GPU: text}, difference)


def _instances(event: int, three: str, two: str, ones: str, seven: str) -> Otherwise:
    names = ("3g.20gb", "2g.10gb", "1g.5gb", "7g.40gb")
    lists = {f"nvidia.com/mig-{name}": text for name, text in zip(names, (three, two, ones, seven), strict=True)}
    return Otherwise(event, lists, "fault-instance")


# Seven instances, one event each: the one that is named falls, and no other.
_ONE_AFTER_THE_OTHER = [_gpu(number, "-" * (number + 1) + "+" * (6 - number), "fault-instance") for number in range(7)]
_TWO_SHARED = [_gpu(0, "---+++", "fault-every-slot"), _gpu(1, "------", "fault-every-slot")]

OTHERWISE: Mapping[str, list[Otherwise]] = {
    "437-health-default": [_gpu(6, "---+", "ecc-counts"), _gpu(12, "----", "ecc-counts")],
    "438-health-wait-error": [_gpu(0, "++++", "event-error"), _gpu(1, "-+++", "event-error")],
    "439-health-gpu-lost": [_gpu(0, "++", "event-error")],
    "449-health-disable-all-enable-79": [_gpu(3, "-+++", "xid-enabled")],
    "454-health-timeslicing": [
        _gpu(0, "---+++++++++", "fault-every-slot"),
        _gpu(2, "------++++++", "fault-every-slot"),
    ],
    # An event names instance 5, then 1, then one that nobody has, then none: the GPU. The last is of the other GPU.
    "456-health-mig-mixed": [
        _instances(0, "+", "+", "-+", "+"),
        _instances(1, "-", "+", "-+", "+"),
        _instances(3, "-", "-", "--", "+"),
        _instances(4, "-", "-", "--", "-"),
    ],
    "457-health-mig-single": _ONE_AFTER_THE_OTHER,
    "484-health-timeslicing-again0": _TWO_SHARED,
    "486-health-timeslicing-again1": _TWO_SHARED,
    "487-health-mig-single-again1": _ONE_AFTER_THE_OTHER,
    "489-health-mig-single-again2": _ONE_AFTER_THE_OTHER,
}


def events(vector: Vector) -> list[str]:
    """Every resource was told the same ones."""
    first = next(iter(vector.result.resources.values()))
    return [frames.event for frames in first.frames_after_event or ()]


def natural(vector: Vector) -> dict[str, list[str]]:
    """The ids of each resource, in the order of its list's text."""
    return {
        name: resource.ids_in_natural_order or [device["ID"] for device in resource.devices or ()]
        for name, resource in vector.result.resources.items()
    }


def theirs(vector: Vector) -> list[Lists]:
    """What NVIDIA's last list said after each event."""
    order = natural(vector)
    now = {name: "+" * len(ids) for name, ids in order.items()}
    after: list[Lists] = []
    for number in range(len(events(vector))):
        for name, resource in vector.result.resources.items():
            frames = (resource.frames_after_event or [])[number].frames
            if frames:
                now[name] = as_text(order[name], {device["ID"]: device["health"] for device in frames[-1]})
        after.append(dict(now))
    return after


def ours(vector: Vector) -> list[Lists]:
    """What ours must say: the same, except where a difference is meant."""
    meant: list[Lists] = list(theirs(vector))
    for line in OTHERWISE.get(vector.file, ()):
        meant[line.event :] = [line.lists] * (len(meant) - line.event)
    return meant


def as_text(ids: list[str], health: Mapping[str, Any]) -> str:
    return "".join("+" if health[one] == "Healthy" else "-" for one in ids)


def repeats(vector: Vector) -> bool:
    """Whether NVIDIA's sent a list that said nothing new."""
    for resource in vector.result.resources.values():
        last = resource.devices
        for frames in resource.frames_after_event or ():
            for frame in frames.frames:
                if frame == last:
                    return True
                last = frame
    return False
