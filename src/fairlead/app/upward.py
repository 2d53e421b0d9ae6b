"""Upward: all that a daemon does with the cluster, as far as its configuration asks for it. Loaded only then.

Owns which parts run. Each has permissions of its own, so a part that nobody asked for does not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from fairlead.app.amounts import Amounts
from fairlead.app.assigning import Assigner, ReadHolders
from fairlead.app.cluster import open_cluster
from fairlead.app.nodeunits import NodeUnits
from fairlead.app.unwell import Unwell
from fairlead.config.load import Loaded
from fairlead.kubelet.service import Record
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.ports import Clock
from fairlead.model.resource import Resource
from fairlead.policy.unitmark import UNITS

RETRY_S = 5.0
KNOCK_S = 0.5  # a person waits


class Upward:
    """Run it as a task; tell it of every inventory."""

    def __init__(
        self, loaded: Loaded, clock: Clock, record: Record, note: Callable[[str, str], None], holders: ReadHolders
    ) -> None:
        """Raises ConfigError or NoAccess when nobody says where the cluster is, or which node this is."""
        self._cluster = open_cluster(loaded, clock)
        self._record, self._note = record, note
        self._amounts: Amounts | None = None
        self._unwell: Unwell | None = None
        self._units: NodeUnits | None = None
        self.assigner: Assigner | None = None
        self._clock, self._holders = clock, holders
        self._due = asyncio.Event()
        self._running: set[object] = set()
        self._knocking: set[asyncio.Task[None]] = set()
        self.open(loaded)

    def open(self, loaded: Loaded) -> None:
        """What a configuration asks for, and no earlier one did."""
        if loaded.amounts and self._amounts is None:
            owner = loaded.config.instance
            self._amounts = Amounts(self._cluster, owner, self._record, lambda problem: self._note("amounts", problem))
        assigns = [rule.assign for rule in loaded.rules if rule.assign is not None]
        if assigns and self.assigner is None:
            self.assigner = Assigner(self._cluster, self._clock, self._record, self._note, self._holders)
        if self.assigner is not None:
            self.assigner.read(assigns)
        if (annotation := loaded.config.cluster.unhealthy) and self._unwell is None:
            self._unwell = Unwell(self._cluster, annotation, self._clock, self._note)
        if loaded.amounts and any(rule.memory for rule in loaded.rules) and self._units is None:
            self._units = NodeUnits(self._cluster, UNITS + loaded.config.instance, self._clock, self._note)
        self._due.set()

    def tell(self, loaded: Loaded, inventory: Inventory, resources: Iterable[Resource]) -> None:
        listed = list(resources)
        if self._amounts is not None:
            self._amounts.tell(inventory, loaded.amounts)
        if self.assigner is not None:
            self.assigner.tell(listed)
        if self._unwell is not None:
            self._unwell.tell(listed)
        if self._units is not None:
            self._units.tell(listed)

    def env(self, resource: Resource) -> Mapping[str, str]:
        return self.assigner.env(resource) if self.assigner is not None else {}

    def told(self) -> Mapping[tuple[ResourceName, SlotId], DeviceId]:
        return self.assigner.told() if self.assigner is not None else {}

    async def knock(self) -> None:
        """Looks whether a silent server still answers. It is waited for shortly, and goes on."""
        tasks = {asyncio.create_task(self._cluster.watch.knock())}
        if self.assigner is not None:
            tasks.add(asyncio.create_task(self.assigner.pods.knock()))
        self._knocking = {task for task in self._knocking if not task.done()} | tasks
        await asyncio.wait(tasks, timeout=KNOCK_S)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._due.wait()
                    self._due.clear()
                    for part in (self._amounts, self.assigner, self._unwell, self._units):
                        if part is not None and part not in self._running:
                            self._running.add(part)
                            group.create_task(self._keep(part))
        finally:
            await self._cluster.close()

    async def _keep(self, part: Amounts | Assigner | Unwell | NodeUnits) -> None:
        """A part that stumbles is told about and started again: without it pods would be refused for ever."""
        name = type(part).__name__.lower()
        while True:
            try:
                await part.run()
            except Exception as error:  # noqa: BLE001 - the others, and the next try, must not suffer for it
                cause = _first(error)
                reason = f"{type(cause).__name__}: {cause}"
                self._record("task-crashed", task=name, reason=reason)
                self._note(name, f"the task {name!r} had to be started again: {reason}")
            await self._clock.sleep(RETRY_S)


def _first(error: BaseException) -> BaseException:
    """What is behind a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
