"""Who holds what, as the kubelet tells it. An absent pod-resources socket is no error, only no answer."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.model.holdings import Holder, Holdings, Unknown
from fairlead.model.names import ResourceName, SlotId
from fairlead.wire.rpc import Channel, Limits, RpcError

if TYPE_CHECKING:
    from fairlead.wire.podresources import ListPodResourcesResponse

DEADLINE_S = 5.0
# A node with 250 pods and long id lists answers in megabytes; the kubelet's own clients allow 16 MiB.
ANSWER_MAX_BYTES = 16 * 1024 * 1024


async def read_holdings(socket: Path, *, timeout_s: float = DEADLINE_S) -> Holdings | Unknown:
    if not os.path.exists(socket):  # noqa: ASYNC240, PTH110 - one stat of a local file
        return Unknown(f"{socket} is not there")
    from fairlead.wire import podresources as pr  # noqa: PLC0415 - loaded with the first question

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
    return holdings_of(answer)


def holdings_of(answer: ListPodResourcesResponse) -> Holdings:
    by_slot: dict[tuple[ResourceName, SlotId], Holder] = {}
    twice: dict[tuple[ResourceName, SlotId], Holder] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            holder = Holder(pod.namespace, pod.name, container.name)
            for devices in container.devices:
                for slot in devices.device_ids:
                    key = ResourceName(devices.resource_name), SlotId(slot)
                    other = by_slot.setdefault(key, holder)
                    if other is not holder:
                        by_slot[key] = holder
                        if (other.namespace, other.pod) != (pod.namespace, pod.name):  # else: used again in one pod
                            twice[key] = other
    return Holdings(by_slot, twice)
