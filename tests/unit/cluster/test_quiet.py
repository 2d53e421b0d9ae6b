"""A server that comes back to a quiet cluster is heard at once, not with the next change."""

from __future__ import annotations

import asyncio

from tests.apiserver.server import ApiServer
from tests.unit.cluster.watching import pod, running, until

from fairlead.cluster.client import Client
from fairlead.cluster.pods import PodCache


async def test_a_watch_that_is_taken_again_ends_the_problem(server: ApiServer, client: Client):
    server.bookmarks = False
    server.store.put("pods", pod("a"), "default")
    cache = PodCache(client, "n1")
    async with running(cache.run()):
        await until(cache.latest, lambda now: now.complete)
        await server.watched()
        await server.stop()
        await until(cache.latest, lambda now: bool(now.problem))
        await server.start()
        now = await until(cache.latest, lambda now: not now.problem)
        assert [one.name for one in now.pods.values()] == ["a"]
        await asyncio.wait_for(server.watched(), 20)
    assert sum("watch" not in request.query for request in server.requests) == 1  # nothing was read twice
