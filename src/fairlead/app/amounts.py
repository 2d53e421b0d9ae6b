"""The daemon's amounts: from its inventory to the node's status. Loaded by a configuration that has some."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.cluster.access import find_access
from fairlead.cluster.amounts import Publisher, Record
from fairlead.cluster.client import Client
from fairlead.config.load import Loaded
from fairlead.config.settings import environment
from fairlead.model.errors import ConfigError
from fairlead.model.inventory import Inventory
from fairlead.model.ports import Clock
from fairlead.policy.amounts import Amount, count


class Amounts:
    """Run it as a task; tell it of every inventory."""

    def __init__(self, loaded: Loaded, clock: Clock, record: Record, on_problem: Callable[[str], None]) -> None:
        """Raises ConfigError or NoAccess when nobody says where the cluster is, or which node this is."""
        spec, around = loaded.config.cluster, environment()
        node = spec.node or around.get("NODE_NAME", "")
        if not node:
            unknown = "the name of this node is not known. Set it, or NODE_NAME to the pod's spec.nodeName"
            raise ConfigError(loaded.source, [f"cluster.node: {unknown}"])
        self._client = Client(find_access(around, clock, kubeconfig=spec.kubeconfig, context=spec.context), clock)
        self._publisher = Publisher(self._client, node, loaded.config.instance, record, on_problem)

    def tell(self, inventory: Inventory, amounts: Sequence[Amount]) -> None:
        adopt = frozenset(amount.resource for amount in amounts if amount.adopt)
        self._publisher.want(count(inventory, amounts), adopt)

    async def run(self) -> None:
        try:
            await self._publisher.run()
        finally:
            await self._client.close()
