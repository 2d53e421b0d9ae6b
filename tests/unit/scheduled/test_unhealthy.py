"""The node says which devices are not usable, and nothing when all are."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.apiserver.server import api_server
from tests.unit.scheduled.cards import make_cards

from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.cluster.cluster import Cluster
from fairlead.cluster.credentials import StaticToken
from fairlead.cluster.tls import TlsConfig
from fairlead.kit.clock import SystemClock
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import ALL_HEALTHY, Conditions
from fairlead.model.names import DeviceId
from fairlead.model.resource import Resource
from fairlead.scheduled.nodeannotation import UnhealthyAnnotation, list_unhealthy

KEY = "example.com/unhealthy"


def ignore(_kind: str, **_keys: object) -> None:
    pass


def cards(*sick: int) -> tuple[Resource, Conditions]:
    cause = Cause("xid", CauseKind.PERMANENT, "it failed")
    conditions = {DeviceId(f"GPU-{number}"): Condition(Health.UNHEALTHY, cause) for number in sick}
    return make_cards(12), Conditions(conditions)


def test_indexes_in_the_order_of_devices():
    made, some = cards(10, 2, 1)
    assert list_unhealthy([made], some) == "1,2,10"
    assert list_unhealthy([made, made], ALL_HEALTHY) == ""


async def test_it_is_written_kept_and_taken_away_and_what_forbids_it_is_told():
    async with api_server() as server:
        server.store.put("nodes", {"metadata": {"name": "n1", "annotations": {KEY: "9", "other": "x"}}, "status": {}})
        clock, notes = SystemClock(), asyncio.Queue[str]()
        client = Client(Access(parse_server(server.url), TlsConfig(), StaticToken(), source="test"), clock)
        unhealthy = UnhealthyAnnotation(
            Cluster(client, "n1"), KEY, clock, ignore, lambda _topic, problem: notes.put_nowait(problem)
        )
        task = asyncio.create_task(unhealthy.run())

        def annotations() -> dict[str, Any]:
            found: dict[str, Any] = server.store.get("nodes", "n1")["metadata"]["annotations"]
            return found

        async def until(wanted: dict[str, str]) -> None:
            async with asyncio.timeout(20):
                while annotations() != wanted:
                    await server.store.news()

        made, some = cards(3, 1)
        unhealthy.tell([made], some)
        await until({KEY: "1,3", "other": "x"})
        # Somebody else's hand is put right.
        node = server.store.get("nodes", "n1")
        server.store.put("nodes", {**node, "metadata": {**node["metadata"], "annotations": {"other": "x"}}})
        await until({KEY: "1,3", "other": "x"})
        server.allowed = {("list", "nodes"), ("watch", "nodes")}
        unhealthy.tell([made], ALL_HEALTHY)
        async with asyncio.timeout(20):
            while "node 'n1' is not annotated with which devices are unusable" not in (told := await notes.get()):
                pass
        assert "patch nodes" in told or '"patch"' in told
        server.allowed = None
        await until({"other": "x"})
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
