"""What is booked of each device, as gpushare's extender tells it over HTTP: by node, by device, by pod."""

from __future__ import annotations

from msgspec import Struct

from fairlead.policy.packing.packing import Origin, Packing
from fairlead.scheduler.view import View

NAMES = {"used_gpu": "usedGPU", "total_gpu": "totalGPU"}  # as clients of gpushare's extender read them


class PodUse(Struct, frozen=True, rename=NAMES):
    name: str
    namespace: str
    used_gpu: int = 0


class DeviceUse(Struct, frozen=True, kw_only=True, rename=NAMES):
    id: int | str
    total_gpu: int
    used_gpu: int
    pods: list[PodUse]


class NodeUse(Struct, frozen=True, kw_only=True, rename=NAMES):
    name: str
    resource: str
    total_gpu: int
    used_gpu: int
    devs: list[DeviceUse]


class Use(Struct, frozen=True):
    nodes: list[NodeUse]
    error: str = ""


def describe(view: View, name: str = "") -> Use | None:
    """Of all nodes, or of one; None if there is no such node with devices of ours."""
    found = [
        _node(packing, one.contract.resource, node)
        for packing, one in zip(view.packings, view.terms, strict=True)
        for node in sorted(packing.nodes)
        if name in {"", node} and packing.nodes[node].devices
    ]
    return Use(found) if found or not name else None


def _node(packing: Packing, resource: str, name: str) -> NodeUse:
    room = packing.nodes[name]
    pods: dict[int, list[PodUse]] = {}
    for booking in packing.on(name):
        if booking.origin is Origin.TENTATIVE:
            continue  # it may go elsewhere
        namespace, _, pod = booking.name.partition("/")
        for share in booking.shares:
            pods.setdefault(share.device, []).append(PodUse(pod, namespace, share.units))
    devices = [
        DeviceUse(
            id=int(device.index) if device.index.isdecimal() else device.index,
            total_gpu=device.units,
            used_gpu=sum(pod.used_gpu for pod in pods.get(place, ())),
            pods=sorted(pods.get(place, ()), key=lambda pod: (pod.namespace, pod.name)),
        )
        for place, device in enumerate(room.devices)
    ]
    return NodeUse(
        name=name,
        resource=resource,
        total_gpu=sum(device.units for device in room.devices),
        used_gpu=sum(device.used_gpu for device in devices),
        devs=devices,
    )
