"""Pods, slots and allocations in as few words as a test needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from fairlead.model.assign import Assign
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.pod import Container, Pod
from fairlead.policy.scheduled.allocations import Allocation, Draft
from fairlead.policy.scheduled.match import Match, Miss, Search
from fairlead.policy.scheduled.pending import PendingPod, read_pod

RESOURCE = ResourceName("example.com/memory")
A, B, C = DeviceId("GPU-a"), DeviceId("GPU-b"), DeviceId("GPU-c")
NAMES = {"0": A, "1": B, "2": C}
ASSIGN = Assign(
    device="card", per_container="each", time="time", assigned="assigned", unassigned=frozenset({"", "false"})
)
ROOM = {A: 8, B: 8, C: 8}


def pod(name: str, *amounts: int, card: str = "0", time: int = 0, init: Sequence[int] = (), **annotations: str) -> Pod:
    texts = {"card": card, "time": str(time), **annotations}
    return Pod(
        uid=name,
        namespace="default",
        name=name,
        phase="Pending",
        annotations={key: text for key, text in texts.items() if text},
        init_containers=tuple(Container(f"init{n}", {RESOURCE: str(amount)}) for n, amount in enumerate(init)),
        containers=tuple(Container(f"main{n}", {RESOURCE: str(amount)}) for n, amount in enumerate(amounts)),
    )


def read(one: Pod, assign: Assign = ASSIGN, *, whole: bool = False) -> PendingPod:
    pending = read_pod(one, RESOURCE, assign, NAMES, whole=whole)
    assert pending is not None
    return pending


def order(*pods: Pod) -> list[PendingPod]:
    return sorted(map(read, pods), key=lambda pending: pending.order)


def slots(card: int, *numbers: int) -> frozenset[SlotId]:
    return frozenset(SlotId(f"{card}-{number}") for number in numbers)


def give(
    allocations: Draft, uid: str, container: str, device: DeviceId, given: frozenset[SlotId], **more: bool
) -> None:
    allocations.add(replace(Allocation(uid, container, given, (device,), 0.0, shown_uid=uid), **more))


def match(*known: Any, **more: Any) -> Match | Miss:
    return Search(*known, **more).match()
