"""Other programs on our socket: a true kubelet keeps its stream and its devices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead.standin.conformance.client import connect
from fairlead.standin.conformance.timing import LoadAwareTimer
from tests.node.cluster import Cluster
from tests.node.daemon import Fairlead, sim, when
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.places import PLUGINS

Make = Callable[[dict[str, Any]], Fairlead]


async def read_a_list_and_leave(socket: str) -> int:
    async with connect(Path(socket), 5.0, LoadAwareTimer(), 0.0) as client, client.lists() as stream:
        async with asyncio.timeout(5):
            return len((await stream.read()).devices)


def test_a_stranger_that_reads_the_list_and_leaves_changes_nothing(cluster: Cluster, fairlead: Make, resource: str):
    daemon = fairlead(sim(resource, 2))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    (socket,) = PLUGINS.glob(f"fairlead-{resource.replace('/', '_')}*.sock")
    left = time.time()
    for _ in range(3):
        assert asyncio.run(read_a_list_and_leave(str(socket))) == 2
    daemon.order("fail", "0", "code=smoke", "kind=needs-reset")  # the kubelet hears of it on the stream that it has
    daemon.wait_fact("published", after=left, resource=resource)
    cluster.wait_numbers(resource, 1, 2)
    again = [fact for event in ("registered", "backoff") for fact in daemon.facts(event) if when(fact) > left]
    assert not again
    pod = cluster.run_pod("after", {resource: 1})
    assert len(cluster.ids(pod)) == 1


def test_a_restarted_kubelet_is_known_beside_a_stranger_that_stays(cluster: Cluster, fairlead: Make, resource: str):
    daemon = fairlead(sim(resource, 2))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    (socket,) = PLUGINS.glob(f"fairlead-{resource.replace('/', '_')}*.sock")

    async def stay_while_it_restarts() -> None:
        async with connect(socket, 5.0, LoadAwareTimer(), 0.0) as client, client.lists() as stream:
            await stream.read()
            await asyncio.to_thread(stop_kubelet)
            back = time.time()
            await asyncio.to_thread(start_kubelet)
            await asyncio.to_thread(daemon.wait_fact, "streaming", back, resource=resource)

    asyncio.run(stay_while_it_restarts())
    cluster.wait_offered(resource, 2)
    assert len(cluster.ids(cluster.run_pod("after", {resource: 1}))) == 1
