"""One annotation of the node, kept as it is wanted. Owns when it is written; what it says, others do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fairlead.app.cluster import Cluster
from fairlead.cluster.backoff import wait_s
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.kinds import NODES
from fairlead.cluster.nodes import Node
from fairlead.cluster.patches import MergePatch
from fairlead.model.ports import Clock


class NodeAnnotation:
    """Run it as a task. `through`: the part of the node that the account may patch; empty: the node itself."""

    topic = ""  # of its problem
    untold = ""  # what the node does not say while there is one
    through = ""

    def __init__(self, cluster: Cluster, annotation: str, clock: Clock, note: Callable[[str, str], None]) -> None:
        self._client, self._node = cluster.client, cluster.node
        self._annotation = annotation
        self._clock = clock
        self._note = note
        self._watch = cluster.watch
        self._wanted: str | None = None  # None: nothing has been told yet, so nothing is taken away
        self._stir = asyncio.Event()

    def want(self, text: str) -> None:
        """Empty: the annotation is removed."""
        if text != self._wanted:
            self._wanted = text
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
                self._note(self.topic, problem)
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
            self._watch.put(await self._client.patch(NODES, self._node, patch, Node, subresource=self.through))
        except ClusterError as error:
            return f"node {self._node!r} is not told {self.untold}: {error}"
        return ""
