"""Writes the labels that the labeller owns to the node, as a patch, and watches the node for changes to them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fairlead.cluster.client import Client
from fairlead.cluster.kinds import NODES
from fairlead.cluster.nodes import Node, NodeWatch
from fairlead.kit.waiting import sleep_unless
from fairlead.programs.labels.amd.catalogue import is_ours
from fairlead.programs.labels.outputs import difference, until_free
from fairlead.programs.labels.rounds import Note

SETTLE_S = 1.0  # one write for several changes, and a limit on the requests of two labellers that disagree


class WatchedNode:
    def __init__(self, client: Client, name: str, note: Note) -> None:
        self._client = client
        self._name = name
        self._note = note
        self._watch = NodeWatch(client, name)
        self._labels: Mapping[str, str] | None = None  # as they should be; None: not known yet
        self._changed = asyncio.Event()

    async def write(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._changed.clear()
        await until_free(lambda: self._write(labels))

    async def _write(self, labels: Mapping[str, str]) -> None:
        node = await self._client.get(NODES, self._name, Node)
        if change := difference(node.metadata.labels, labels, is_ours):
            await self._client.change(NODES, self._name, {"metadata": {"labels": change}})

    async def withdraw(self) -> None:
        """They stay: an update of ours must not strip the node for a moment."""

    async def rest(self, seconds: float) -> None:
        """For so long, or until another writer changes a label, or until `wake`."""
        clock = self._client.clock
        if await sleep_unless(self._changed, clock, max(seconds, 0.1)):
            await clock.sleep(SETTLE_S)

    def wake(self) -> None:
        self._changed.set()

    async def follow(self) -> None:
        """Runs until cancelled."""
        watching = asyncio.ensure_future(self._watch.run())
        problem = ""
        try:
            async for now in self._watch.latest.follow():
                if now.problem and not problem:
                    self._note(
                        f"the node cannot be watched, so changed labels are found only at the next look: {now.problem}"
                    )
                problem = now.problem
                if now.node is not None and self._is_wrong(now.node):
                    self.wake()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _is_wrong(self, node: Node) -> bool:
        return self._labels is not None and bool(difference(node.metadata.labels, self._labels, is_ours))
