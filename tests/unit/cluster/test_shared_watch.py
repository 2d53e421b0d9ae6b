"""Several parts of a program follow the node by one watch."""

from __future__ import annotations

import asyncio

from tests.apiserver.server import ApiServer
from tests.unit.cluster.watching import until

from fairlead.cluster.client import Client
from fairlead.cluster.nodes import NodeWatch
from fairlead.cluster.rbac import FEATURES


async def test_two_parts_run_one_watch_and_the_second_goes_on_when_the_first_ends(server: ApiServer, client: Client):
    server.allowed = {(v, rule.resource) for rule in FEATURES["`fairlead nvidia config-manager`"] for v in rule.verbs}
    server.store.put("nodes", {"metadata": {"name": "n1", "labels": {"a": "1"}}})
    watch = NodeWatch(client, "n1")
    first, second = asyncio.create_task(watch.run()), asyncio.create_task(watch.run())
    try:
        await until(watch.latest, lambda now: now.node is not None)
        await server.watched()
        assert sum("watch" in request.query for request in server.requests) == 1
        first.cancel()
        await asyncio.wait({first})
        server.store.put("nodes", {"metadata": {"name": "n1", "labels": {"a": "2"}}})
        now = await until(watch.latest, lambda now: now.node is not None and now.node.metadata.labels["a"] == "2")
        assert not now.problem
        assert sum("watch" not in request.query for request in server.requests) == 1  # it goes on, not begins
    finally:
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
