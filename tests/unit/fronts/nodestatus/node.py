"""A node on a fake API server, and a part that tells of faults on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.apiserver.server import ApiServer

from fairlead.cluster.client import Client
from fairlead.cluster.cluster import Cluster

PATIENCE_S = 20.0
READY = {"type": "Ready", "status": "True"}


class NodeStage:
    def __init__(self, server: ApiServer, client: Client, name: str = "n1") -> None:
        self.server = server
        self.cluster = Cluster(client, name)
        self.problems: dict[str, str] = {}
        self.told: list[str] = []  # every problem that there was
        self.facts: list[tuple[str, dict[str, Any]]] = []
        self.put(READY)

    def put(self, *conditions: dict[str, str], boot: str = "boot-2") -> None:
        status = {"conditions": list(conditions), "nodeInfo": {"bootID": boot}}
        self.server.store.put("nodes", {"metadata": {"name": "n1", "uid": "u1"}, "status": status})

    @property
    def conditions(self) -> dict[str, dict[str, str]]:
        return {one["type"]: one for one in self.server.store.get("nodes", "n1")["status"]["conditions"]}

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.server.store.all("events", "default", "")

    def record(self, kind: str, **keys: Any) -> None:
        self.facts.append((kind, keys))

    def note(self, topic: str, problem: str) -> None:
        self.problems[topic] = problem
        self.told.append(problem)

    def sent(self, method: str) -> list[Any]:
        return [request for request in self.server.requests if request.method == method]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - a problem or a request: not all of them call
                await asyncio.sleep(0.002)
