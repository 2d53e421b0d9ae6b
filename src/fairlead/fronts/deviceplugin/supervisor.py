"""The supervisor: one endpoint per resource, started, updated and stopped by difference. Each fails alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from fairlead.engine.allocator import Allocator
from fairlead.fronts.deviceplugin.endpoint import Endpoint, EndpointContext
from fairlead.model.errors import Oversize
from fairlead.model.inventory import Conditions
from fairlead.model.names import ResourceName
from fairlead.model.resource import Resource

CRASH_BACKOFF_S = 1.0
CRASH_BACKOFF_MAX_S = 60.0


class Supervisor:
    def __init__(self, allocator: Allocator, context: EndpointContext) -> None:
        self.allocator = allocator
        self._context = context
        self._endpoints: dict[ResourceName, Endpoint] = {}
        self._tasks: dict[ResourceName, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self.refused: dict[ResourceName, str] = {}  # resources that cannot be served at all, and why

    @property
    def endpoints(self) -> Mapping[ResourceName, Endpoint]:
        return self._endpoints

    @property
    def unsent(self) -> Mapping[ResourceName, Resource | None]:
        """Resources whose list was refused as too large, and what the kubelet has instead."""
        kept = {name: each.resource for name, each in self._endpoints.items() if each.problem}
        return {**dict.fromkeys(self.refused), **kept}

    def apply(self, resources: Iterable[Resource], conditions: Conditions) -> None:
        """Makes the endpoints match. A resource that stays keeps its socket, its streams and its registration."""
        wanted = {resource.name: resource for resource in resources}
        for name in self._endpoints.keys() - wanted.keys():
            self._context.record("resource-removed", resource=name)
            self._drop(name)
        self.refused = {name: why for name, why in self.refused.items() if name in wanted}
        for name, resource in wanted.items():
            endpoint = self._endpoints.get(name)
            if endpoint is not None:
                endpoint.publish(resource, conditions)
            else:
                self._add(resource, conditions)

    async def supersede(self, timeout_s: float) -> None:
        """Every endpoint gives its resource up, and goes on to answer. One that does not in time is dropped."""
        endpoints = list(self._endpoints.values())
        left = await asyncio.gather(*(endpoint.supersede(timeout_s) for endpoint in endpoints))
        self.keep(endpoint.name for endpoint, done in zip(endpoints, left, strict=True) if done)

    def keep(self, names: Iterable[str]) -> None:
        """Ends the endpoints of all other resources."""
        for name in self._endpoints.keys() - set(names):
            self._drop(name)

    def resume(self) -> None:
        for endpoint in self._endpoints.values():
            endpoint.resume()

    def update(self, conditions: Conditions) -> None:
        """The health of devices has changed, and nothing else."""
        for endpoint in self._endpoints.values():
            endpoint.update(conditions)

    def repeat(self, names: Iterable[ResourceName]) -> None:
        """Sends these lists once more."""
        for name in names:
            if (endpoint := self._endpoints.get(name)) is not None:
                endpoint.repeat()

    def _add(self, resource: Resource, conditions: Conditions) -> None:
        name = resource.name
        try:
            endpoint = Endpoint(resource, conditions, self.allocator, self._context)
        except Oversize as error:
            if self.refused.get(name) != str(error):
                self.refused[name] = str(error)
                self._context.record("list-refused", resource=name, reason=str(error))
            return
        self.refused.pop(name, None)
        self._endpoints[name] = endpoint
        unit_mib = resource.unit_bytes >> 20 or None
        self._context.record(
            "resource-added",
            resource=name,
            slots=len(resource.slots),
            unit_mib=unit_mib,
            bytes=len(endpoint.device_list.frame),
        )
        self._tasks[name] = asyncio.create_task(self._guard(endpoint, self._tasks.get(name)), name=f"endpoint {name}")

    def _drop(self, name: ResourceName) -> None:
        del self._endpoints[name]
        task = self._tasks.pop(name)
        task.cancel()
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _guard(self, endpoint: Endpoint, before: asyncio.Task[None] | None) -> None:
        """Runs an endpoint. A crash is recorded, and the endpoint starts again after a while."""
        # A resource that was dropped and comes back waits for its old self to let go of the socket.
        leaving = [
            task
            for task in (*self._leaving, before)
            if task is not None and task.get_name() == f"endpoint {endpoint.name}"
        ]
        if leaving:
            await asyncio.wait(leaving)
        wait_s = CRASH_BACKOFF_S
        while True:
            try:
                await endpoint.run()
            except Exception as error:  # noqa: BLE001 - whatever it was, the other endpoints must not feel it
                self._context.record(
                    "endpoint-crashed", resource=endpoint.name, reason=f"{type(error).__name__}: {error}"
                )
            await self._context.clock.sleep(wait_s)
            wait_s = min(CRASH_BACKOFF_MAX_S, wait_s * 2)

    async def stop(self) -> None:
        """Ends every endpoint, all at once."""
        for name in list(self._endpoints):
            self._drop(name)
        if self._leaving:
            await asyncio.gather(*self._leaving, return_exceptions=True)
