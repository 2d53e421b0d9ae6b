"""The cluster, as this node uses it: one client, and the node's name and watch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fairlead.cluster.client import Client
from fairlead.cluster.nodes import NodeWatch


class Cluster:
    def __init__(self, client: Client, node: str, find_node: Callable[[], Awaitable[str]] | None = None) -> None:
        """`find_node`: knows the name of this node, where it is empty. The watch is of no use then."""
        self.client = client
        self.node = node
        self._find_node = find_node
        self.watch = NodeWatch(client, node)  # one for all parts; each part that needs it runs it

    async def name(self) -> str:
        """The name of this node; it is asked for once. Raises ClusterError."""
        if not self.node and self._find_node is not None:
            self.node = await self._find_node()
        return self.node

    async def close(self) -> None:
        await self.client.close()
