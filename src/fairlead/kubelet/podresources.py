"""Who holds what, as the kubelet tells it. An absent pod-resources socket is no error, only no answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from msgspec import Struct, field

from fairlead.model.names import ResourceName, SlotId
from fairlead.wire.rpc import Channel, Limits, RpcError

DEADLINE_S = 5.0
# A node with 250 pods and long id lists answers in megabytes; the kubelet's own clients allow 16 MiB.
ANSWER_MAX_BYTES = 16 * 1024 * 1024


class Holder(Struct, frozen=True):
    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


class Holdings(Struct, frozen=True, dict=True):
    """One answer of the kubelet. `by_slot` is keyed by resource and id: ids of other plugins may look like ours."""

    by_slot: Mapping[tuple[ResourceName, SlotId], Holder] = field(default_factory=dict)

    @cached_property
    def by_resource(self) -> Mapping[ResourceName, frozenset[SlotId]]:
        slots: dict[ResourceName, set[SlotId]] = {}
        for name, slot in self.by_slot:
            slots.setdefault(name, set()).add(slot)
        return {name: frozenset(held) for name, held in slots.items()}

    def by_holder(self, resource: ResourceName) -> Mapping[tuple[str, str, str], frozenset[SlotId]]:
        """By namespace, pod and container."""
        slots: dict[tuple[str, str, str], set[SlotId]] = {}
        for (name, slot), holder in self.by_slot.items():
            if name == resource:
                slots.setdefault((holder.namespace, holder.pod, holder.container), set()).add(slot)
        return {holder: frozenset(held) for holder, held in slots.items()}

    def of(self, resource: ResourceName) -> frozenset[SlotId]:
        return self.by_resource.get(resource, frozenset())


class Unknown(Struct, frozen=True):
    """The kubelet gave no answer, and why. Not the same as "nobody holds anything"."""

    reason: str


async def read_holdings(socket: Path, *, timeout_s: float = DEADLINE_S) -> Holdings | Unknown:
    if not os.path.exists(socket):  # noqa: ASYNC240, PTH110 - one stat of a local file
        return Unknown(f"{socket} is not there")
    from fairlead.wire import podresources as pr  # noqa: PLC0415 - loaded by whoever asks

    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s  # for both steps together
    try:
        channel = await Channel.connect(str(socket), timeout_s=timeout_s, limits=Limits(message_bytes=ANSWER_MAX_BYTES))
        try:
            left_s = max(0.05, deadline_s - loop.time())
            answer = await channel.unary(pr.LIST, pr.ListPodResourcesRequest(), timeout_s=left_s)
        finally:
            await channel.close()
    except RpcError as error:
        return Unknown(f"{socket}: {error.status.name.lower()}: {error.message}")
    return Holdings(
        {
            (ResourceName(devices.resource_name), SlotId(slot)): Holder(pod.namespace, pod.name, container.name)
            for pod in answer.pod_resources
            for container in pod.containers
            for devices in container.devices
            for slot in devices.device_ids
        }
    )
