"""The node says how large its units of memory are, with no other right than that on its status."""

from __future__ import annotations

import asyncio

from tests.apiserver.server import api_server
from tests.unit.policy.placement.cards import GIB, NAME, node, shared

from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.cluster.cluster import Cluster
from fairlead.cluster.credentials import StaticToken
from fairlead.cluster.tls import TlsConfig
from fairlead.kit.clock import SystemClock
from fairlead.model.resource import MemoryTerms
from fairlead.scheduled.nodeannotation import UnitAnnotation

KEY = "units.fairlead/doslab"


def ignore(_kind: str, **_keys: object) -> None:
    pass


async def test_it_is_written_through_the_status_and_follows_the_unit():
    async with api_server() as server:
        server.allowed = {("list", "nodes"), ("watch", "nodes"), ("patch", "nodes/status")}
        server.store.put("nodes", {"metadata": {"name": "n1", "annotations": {"other": "x"}}, "status": {}})
        clock = SystemClock()
        client = Client(Access(parse_server(server.url), TlsConfig(), StaticToken(), source="test"), clock)
        units = UnitAnnotation(Cluster(client, "n1"), KEY, clock, ignore, lambda _topic, _problem: None)
        task = asyncio.create_task(units.run())
        for unit_gib in (1, 2):
            units.tell([shared(node(8 * GIB), MemoryTerms(unit_gib * GIB, grow=False))])
            wanted = {KEY: f"{NAME}={8 // unit_gib}x{unit_gib * 1024}MiB", "other": "x"}
            async with asyncio.timeout(20):
                while server.store.get("nodes", "n1")["metadata"]["annotations"] != wanted:
                    await server.store.news()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
