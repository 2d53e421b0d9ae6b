"""The node tells schedulers of its single devices, with no other right than that on its status."""

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
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import ALL_HEALTHY, Conditions
from fairlead.model.resource import MemoryTerms
from fairlead.policy.packing.told import key_of, read_told
from fairlead.scheduled.nodeannotation import DevicesAnnotations, list_devices

RESOURCE = shared(node(8 * GIB, 4 * GIB), MemoryTerms(GIB, grow=False))
FIRST = RESOURCE.slots[0].device
ILL = Conditions({FIRST: Condition(Health.UNHEALTHY, Cause("xid-79", CauseKind.PERMANENT, "it fell off the bus"))})


def ignore(_kind: str, **_keys: object) -> None:
    pass


def test_each_device_has_its_units_and_its_health():
    well, ill = (list_devices(RESOURCE, conditions) for conditions in (ALL_HEALTHY, ILL))
    assert [one.units for one in well] == [8, 4]
    assert [one.usable for one in well] == [True, True]
    assert [one.usable for one in ill] == [False, True]


async def test_it_changes_when_the_devices_do_and_goes_with_the_resource():
    async with api_server() as server:
        server.allowed = {("list", "nodes"), ("watch", "nodes"), ("patch", "nodes/status")}
        server.store.put("nodes", {"metadata": {"name": "n1", "annotations": {"other": "x"}}, "status": {}})
        clock = SystemClock()
        client = Client(Access(parse_server(server.url), TlsConfig(), StaticToken(), source="test"), clock)
        told = DevicesAnnotations(Cluster(client, "n1"), "", clock, ignore, lambda _topic, _problem: None)
        task = asyncio.create_task(told.run())
        key = key_of(NAME)

        def annotations() -> dict[str, str]:
            found: dict[str, str] = server.store.get("nodes", "n1")["metadata"]["annotations"]
            return found

        for conditions, usable in ((ALL_HEALTHY, True), (ILL, False)):
            told.tell([RESOURCE], conditions)
            async with asyncio.timeout(20):
                while (read_told(annotations().get(key, "")) or ()) != tuple(list_devices(RESOURCE, conditions)):
                    await server.store.news()
            devices = read_told(annotations()[key])
            assert devices is not None
            assert devices[0].usable is usable
        patches = sum(request.method == "PATCH" for request in server.requests)
        told.tell([RESOURCE], ILL)  # nothing new
        told.tell([], ILL)
        async with asyncio.timeout(20):
            while annotations() != {"other": "x"}:
                await server.store.news()
        assert sum(request.method == "PATCH" for request in server.requests) == patches + 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
