"""The supervisor: one unit per resource, started, updated and stopped by difference. Each fails alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from fairlead.kubelet.service import Outfit
from fairlead.kubelet.unit import Place, Unit
from fairlead.model.errors import Oversize
from fairlead.model.names import ResourceName
from fairlead.model.resource import Resource

CRASH_BACKOFF_S = 1.0
CRASH_BACKOFF_MAX_S = 60.0


class Supervisor:
    def __init__(self, outfit: Outfit, place: Place) -> None:
        self._outfit = outfit
        self._place = place
        self._units: dict[ResourceName, Unit] = {}
        self._tasks: dict[ResourceName, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self.refused: dict[ResourceName, str] = {}  # resources that cannot be served at all, and why

    @property
    def units(self) -> Mapping[ResourceName, Unit]:
        return self._units

    def apply(self, resources: Iterable[Resource]) -> None:
        """Makes the units match. A resource that stays keeps its socket, its streams and its registration."""
        wanted = {resource.name: resource for resource in resources}
        for name in self._units.keys() - wanted.keys():
            self._place.record("resource-removed", resource=name)
            self._drop(name)
        self.refused = {name: why for name, why in self.refused.items() if name in wanted}
        for name, resource in wanted.items():
            unit = self._units.get(name)
            if unit is not None:
                unit.publish(resource)
            else:
                self._add(resource)

    def repeat(self, names: Iterable[ResourceName]) -> None:
        """Sends these lists once more."""
        for name in names:
            if (unit := self._units.get(name)) is not None:
                unit.repeat()

    def _add(self, resource: Resource) -> None:
        name = resource.name
        try:
            unit = Unit(resource, self._outfit, self._place)
        except Oversize as error:
            if self.refused.get(name) != str(error):
                self.refused[name] = str(error)
                self._place.record("list-refused", resource=name, reason=str(error))
            return
        self.refused.pop(name, None)
        self._units[name] = unit
        unit_mib = resource.unit_bytes >> 20 or None
        self._place.record(
            "resource-added", resource=name, slots=len(resource.slots), unit_mib=unit_mib, bytes=len(unit.offer.frame)
        )
        self._tasks[name] = asyncio.create_task(self._guard(unit, self._tasks.get(name)), name=f"unit {name}")

    def _drop(self, name: ResourceName) -> None:
        del self._units[name]
        task = self._tasks.pop(name)
        task.cancel()
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _guard(self, unit: Unit, before: asyncio.Task[None] | None) -> None:
        """Runs a unit; a crash is told, and the unit starts again after a while."""
        # A resource that was dropped and comes back waits for its old self to let go of the socket.
        leaving = [
            task for task in (*self._leaving, before) if task is not None and task.get_name() == f"unit {unit.name}"
        ]
        if leaving:
            await asyncio.wait(leaving)
        wait_s = CRASH_BACKOFF_S
        while True:
            try:
                await unit.run()
            except Exception as error:  # noqa: BLE001 - whatever it was, the other units must not feel it
                self._place.record("unit-crashed", resource=unit.name, reason=f"{type(error).__name__}: {error}")
            await self._place.clock.sleep(wait_s)
            wait_s = min(CRASH_BACKOFF_MAX_S, wait_s * 2)

    async def stop(self) -> None:
        """Ends every unit, all at once."""
        for name in list(self._units):
            self._drop(name)
        if self._leaving:
            await asyncio.gather(*self._leaving, return_exceptions=True)
