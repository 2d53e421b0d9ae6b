"""The daemon's amounts: from its inventory to the node's status. Loaded by a configuration that has some."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.app.cluster import Cluster
from fairlead.cluster.amounts import Publisher, Record
from fairlead.model.inventory import Inventory
from fairlead.policy.amounts import Amount, count


class Amounts:
    """Run it as a task; tell it of every inventory."""

    def __init__(self, cluster: Cluster, owner: str, record: Record, on_problem: Callable[[str], None]) -> None:
        self._publisher = Publisher(cluster.client, cluster.watch, owner, record, on_problem)

    def tell(self, inventory: Inventory, amounts: Sequence[Amount]) -> None:
        adopt = frozenset(amount.resource for amount in amounts if amount.adopt)
        self._publisher.want(count(inventory, amounts), adopt)

    async def run(self) -> None:
        await self._publisher.run()
