"""Unwell: an annotation of the node lists the indexes of devices that are not usable, for schedulers that read it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from fairlead.app.cluster import Cluster
from fairlead.cluster.backoff import wait_s
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.kinds import NODES
from fairlead.cluster.nodes import Node
from fairlead.cluster.patches import MergePatch
from fairlead.model.device import Device
from fairlead.model.ports import Clock
from fairlead.model.resource import Resource
from fairlead.policy.order import device_key


class Unwell:
    """Run it as a task; tell it of every change."""

    def __init__(self, cluster: Cluster, annotation: str, clock: Clock, note: Callable[[str, str], None]) -> None:
        self._client, self._node = cluster.client, cluster.node
        self._annotation = annotation
        self._clock = clock
        self._note = note
        self._watch = cluster.watch
        self._wanted: str | None = None  # None: nothing has been told yet, so nothing is taken away
        self._stir = asyncio.Event()

    def tell(self, resources: Iterable[Resource]) -> None:
        wanted = list_unwell(resources)
        if wanted != self._wanted:
            self._wanted = wanted
            self._stir.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run())
            group.create_task(self._follow())
            failures = 0
            while True:
                await self._stir.wait()
                self._stir.clear()
                problem = await self._write()
                self._note("unhealthy", problem)
                failures = failures + 1 if problem else 0
                if problem:
                    await self._clock.sleep(wait_s(failures - 1, self._client.rng))
                    self._stir.set()

    async def _follow(self) -> None:
        async for _ in self._watch.latest.follow():
            self._stir.set()

    async def _write(self) -> str:
        now, wanted = self._watch.latest.value, self._wanted
        if now.node is None or wanted is None:
            return now.problem
        if now.node.metadata.annotations.get(self._annotation, "") == wanted:
            return ""
        patch = MergePatch({"metadata": {"annotations": {self._annotation: wanted or None}}})
        try:
            self._watch.put(await self._client.patch(NODES, self._node, patch, Node))
        except ClusterError as error:
            return f"node {self._node!r} is not told which devices are unusable: {error}"
        return ""


def list_unwell(resources: Iterable[Resource]) -> str:
    """Indexes with commas between them, in the order of devices; empty if all are usable."""
    unwell: dict[str, Device] = {}
    for resource in resources:
        for name in resource.slots_of:
            device = resource.inventory.by_id.get(name)
            if device is not None and not resource.inventory.condition(name).health.usable:
                unwell[name] = device
    return ",".join(device.index for device in sorted(unwell.values(), key=device_key))
