"""Annotations of the node, for schedulers and other clients that read them. Each is kept as it is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from fairlead.cluster.cluster import Cluster
from fairlead.cluster.kinds import NODES
from fairlead.cluster.nodes import Node
from fairlead.cluster.patches import MergePatch
from fairlead.kit.calls import explain
from fairlead.kit.supervise import SupervisedLoop
from fairlead.model.device import Device
from fairlead.model.inventory import Conditions
from fairlead.model.ports import Clock, Record
from fairlead.model.resource import Resource
from fairlead.policy.offering.units import write_units
from fairlead.policy.order import device_key
from fairlead.policy.packing.node import DeviceRoom
from fairlead.policy.packing.told import key_of, write_told


class NodeAnnotation:
    """Run it as a task; tell it of every change."""

    topic = ""  # of its problem
    subject = ""  # what the annotation says, for its problem
    through = ""  # the part of the node that the account may patch; empty: the node itself

    def __init__(
        self, cluster: Cluster, annotation: str, clock: Clock, record: Record, note: Callable[[str, str], None]
    ) -> None:
        self._client, self._node = cluster.client, cluster.node
        self._annotation = annotation
        self._watch = cluster.watch
        self._wanted: Mapping[str, str] | None = None  # by key; None: not known yet, so nothing is removed
        self._due = asyncio.Event()
        self._loop = SupervisedLoop(
            self.topic,
            self._write,
            clock=clock,
            rng=cluster.client.rng,
            report=partial(note, self.topic),
            record=record,
            due=self._due,
            describe=lambda error: f"node {cluster.node!r} is not annotated with {self.subject}: {explain(error)}",
        )

    def want(self, text: str) -> None:
        """Empty: the annotation is removed."""
        self.want_all({self._annotation: text})

    def want_all(self, texts: Mapping[str, str]) -> None:
        """By key. What was wanted before, and is not any more, is removed."""
        wanted = {**dict.fromkeys(self._wanted or (), ""), **texts}
        if wanted != self._wanted:
            self._wanted = wanted
            self._due.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run())
            group.create_task(self._follow())
            group.create_task(self._loop.run())

    async def _follow(self) -> None:
        async for _ in self._watch.latest.follow():
            self._due.set()

    async def _write(self) -> str:
        now, wanted = self._watch.latest.value, self._wanted
        if now.node is None or wanted is None:
            return now.problem
        there = now.node.metadata.annotations
        changes = {key: text or None for key, text in wanted.items() if there.get(key, "") != text}
        if changes:
            patch = MergePatch({"metadata": {"annotations": changes}})
            self._watch.put(await self._client.patch(NODES, self._node, patch, Node, subresource=self.through))
        return ""


class UnhealthyAnnotation(NodeAnnotation):
    """Lists the indexes of the devices that are not usable."""

    topic = "unhealthy"
    subject = "which devices are unusable"

    def tell(self, resources: Iterable[Resource], conditions: Conditions) -> None:
        self.want(list_unhealthy(resources, conditions))


class UnitAnnotation(NodeAnnotation):
    """Says how large units of memory are. Needs no permission that amounts do not need."""

    topic = "node-units"
    subject = "how large a unit of memory is"
    through = "status"

    def tell(self, resources: Iterable[Resource]) -> None:
        self.want(write_units(resources))


class DevicesAnnotations(NodeAnnotation):
    """Tells schedulers of single devices, which the node's status does not: one annotation for each resource."""

    topic = "node-devices"
    subject = "its devices"
    through = "status"

    def tell(self, resources: Iterable[Resource], conditions: Conditions) -> None:
        self.want_all({key_of(one.name): write_told(list_devices(one, conditions)) for one in resources})


def list_devices(resource: Resource, conditions: Conditions) -> list[DeviceRoom]:
    """In the order of devices. Slots that leave are not offered any more."""
    devices = [resource.inventory.by_id[name] for name in resource.slots_of if name in resource.inventory.by_id]
    return [
        DeviceRoom(
            device.index or device.id,
            device.id,
            sum(1 for slot in resource.slots_of[device.id] if slot.retired_s is None),
            device.id not in conditions.unhealthy,
            device.numa_nodes[0] if len(device.numa_nodes) == 1 else None,
        )
        for device in sorted(devices, key=device_key)
    ]


def list_unhealthy(resources: Iterable[Resource], conditions: Conditions) -> str:
    """Indexes with commas between them, in the order of devices; empty if all are usable."""
    unhealthy: dict[str, Device] = {}
    for resource in resources:
        for name in conditions.unhealthy & resource.slots_of.keys():
            if (device := resource.inventory.by_id.get(name)) is not None:
                unhealthy[name] = device
    return ",".join(device.index for device in sorted(unhealthy.values(), key=device_key))
