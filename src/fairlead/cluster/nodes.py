"""One node as the API server knows it: labels, annotations and amounts. Its watch keeps the newest."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct, field

from fairlead.cluster.client import Client, Meta
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.kinds import NODES
from fairlead.cluster.reflector import Reflector, is_older
from fairlead.kit.latest import Latest


class NodeMeta(Meta, frozen=True, rename="camel"):
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


class NodeStatus(Struct, frozen=True):
    capacity: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)


class Node(Struct, frozen=True):
    metadata: NodeMeta = field(default_factory=NodeMeta)
    status: NodeStatus = field(default_factory=NodeStatus)

    @property
    def name(self) -> str:
        return self.metadata.name


class NodeSnapshot(Struct, frozen=True):
    """The node, or None while it is not known. `complete`: it was looked for, so None means that there is none."""

    node: Node | None = None
    complete: bool = False
    problem: str = ""


class NodeWatch:
    """Run it as a task; read `latest` at any time, or follow it.

    Several parts of a program may run the same one: one of them does, and if that one ends, another goes on.
    """

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self.latest: Latest[NodeSnapshot] = Latest(NodeSnapshot())
        self._reflector = Reflector(client, NODES, Node, self, fields=f"metadata.name={name}")
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        async with self._turn:
            await self._reflector.run()

    async def check(self) -> None:
        """Reads the node from the server, once, within `CHECK_S`. Its failure is the problem of `latest`."""
        with suppress(ClusterError):
            await self._reflector.check()

    async def ping(self) -> None:
        """See `Reflector.ping`."""
        await self._reflector.ping()

    def replace(self, items: tuple[Node, ...], version: str, began_s: float) -> bool:
        del version, began_s
        seen = self.latest.version
        self._set(next((node for node in items if node.name == self.name), None))
        return self.latest.version != seen

    def put(self, item: Node) -> None:
        known = self.latest.value.node
        version = known.metadata.resource_version if known is not None else ""
        if item.name == self.name and not is_older(item.metadata.resource_version, version):
            self._set(item)

    def drop(self, item: Node) -> None:
        if item.name == self.name:
            self._set(None)

    def heard(self) -> None:
        now = self.latest.value
        if now.problem:
            self.latest.set(NodeSnapshot(now.node, now.complete))

    def lost(self, error: ClusterError) -> None:
        now = self.latest.value
        self.latest.set(NodeSnapshot(now.node, now.complete, str(error)))

    def _set(self, node: Node | None) -> None:
        # The kubelet's reports come every few seconds; most change nothing that is read here.
        known = self.latest.value.node
        if node is None or known is None or _read(node) != _read(known):
            self.latest.set(NodeSnapshot(node, complete=True))


def _read(node: Node) -> tuple[object, ...]:
    return node.metadata.annotations, node.metadata.labels, node.metadata.uid, node.status
