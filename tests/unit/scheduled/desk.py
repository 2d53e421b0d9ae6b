"""An assigner with an API server that can be troubled, and the kubelet's calls to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec.structs import replace
from tests.apiserver.trouble import TroubledServer, troubled_server
from tests.unit.scheduled.cards import ASSIGN, MEMORY, make_cards

from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.cluster.cluster import Cluster
from fairlead.cluster.credentials import StaticToken
from fairlead.cluster.tls import TlsConfig
from fairlead.kit.clock import SystemClock
from fairlead.model.assign import Assign
from fairlead.model.edits import Grant
from fairlead.model.errors import ClusterAway, NotAssigned
from fairlead.model.holdings import Holder, Holdings, Unknown
from fairlead.model.inventory import ALL_HEALTHY
from fairlead.model.names import SlotId
from fairlead.model.ports import Clock
from fairlead.model.resource import Resource, Terms
from fairlead.scheduled.assigner import Assigner

FAST = replace(ASSIGN, wait_s=0.05)


class Desk:
    def __init__(self, server: TroubledServer, resource: Resource, clock: Clock) -> None:
        access = Access(parse_server(server.url), TlsConfig(), StaticToken(), source="test")
        self.cluster = Cluster(Client(access, clock), "n1")
        self.server, self.resource = server, resource
        self.facts: list[tuple[str, dict[str, Any]]] = []
        self.problems: dict[str, str] = {}
        self.held: dict[tuple[Any, SlotId], Holder] = {}
        self.blind = ""
        self.news = asyncio.Event()
        self.assigner = Assigner(self.cluster, clock, self._record, self._note, self._holders)
        self.use(resource)

    def use(self, *resources: Resource) -> None:
        self.assigner.read([resource.terms.assign for resource in resources if resource.terms.assign])
        self.assigner.tell(resources, ALL_HEALTHY)

    def _record(self, kind: str, **keys: Any) -> None:
        self.facts.append((kind, keys))
        self.news.set()

    def _note(self, topic: str, problem: str) -> None:
        self.problems[topic] = problem
        self.news.set()

    async def _holders(self, _timeout_s: float) -> Holdings | Unknown:
        return Unknown(self.blind) if self.blind else Holdings(self.held)

    async def until(self, condition: Callable[[], Any]) -> None:
        """Until something was recorded, noted or stored that makes it true."""
        async with asyncio.timeout(20):
            while not condition():
                self.news.clear()
                waits = [asyncio.ensure_future(self.news.wait()), asyncio.ensure_future(self.server.store.news())]
                _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in pending:
                    wait.cancel()

    def bind(self, name: str, amount: int, resource: str = MEMORY, **annotations: str) -> None:
        meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations}
        container = {"name": "main", "resources": {"limits": {resource: str(amount)}}}
        spec = {"nodeName": "n1", "containers": [container]}
        self.server.store.put("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, "default")

    async def seen(self) -> None:
        """The watch has told all there is."""
        names = {name for kind, _, name in self.server.store.objects if kind == "pods"}
        async with asyncio.timeout(20):
            async for now in self.assigner.pods.latest.follow():
                if now.complete and not now.problem and {pod.name for pod in now.pods.values()} == names:
                    return

    async def admit(self, pod: str, amount: int, resource: Resource | None = None) -> Grant:
        resource = resource or self.resource
        taken = {slot for name, slot in self.held if name == resource.name}
        free = [slot.id for slot in resource.slots if slot.id not in taken]
        chosen = list(free[:amount])
        with suppress(NotAssigned, ClusterAway):
            chosen = list(await self.assigner.prefer(resource, free, [], amount)) or chosen
        try:
            grant = await self.assigner.confirm(resource, chosen)
        except (NotAssigned, ClusterAway):
            self.assigner.forget(resource, [])
            raise
        self.held |= {(resource.name, SlotId(slot)): Holder("default", pod, "main") for slot in chosen}
        return grant

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.server.store.get("pods", name, "default")["metadata"]["annotations"]
        return found


@asynccontextmanager
async def desk(
    assign: Assign = FAST, *, node: bool = True, run: bool = True, clock: Clock | None = None
) -> AsyncIterator[Desk]:
    async with troubled_server() as server:
        if node:
            meta = {"name": "n1", "annotations": {"lock": "x"}, "labels": {}}
            server.store.put("nodes", {"metadata": meta, "status": {}})
        at = Desk(server, replace(make_cards(), terms=Terms(assign=assign)), clock or SystemClock())
        task = asyncio.create_task(at.assigner.run()) if run else None
        try:
            if run:
                await at.seen()
            yield at
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await at.cluster.close()
