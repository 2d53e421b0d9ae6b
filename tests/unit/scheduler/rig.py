"""An extender on a fake API server, and the objects that it is asked about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import msgspec
from tests.apiserver.server import ApiServer

from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.kit.clock import SystemClock
from fairlead.policy.pods.contract import GPUSHARE, Contract
from fairlead.scheduler.extender import Extender, ExtenderTerms
from fairlead.scheduler.objects import NodeObject, PodObject
from fairlead.scheduler.protocol import BindingArgs, BindingResult, ExtenderArgs, FilterResult
from fairlead.scheduler.view import Terms, View

MEMORY, COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
INDEX, OF_POD = GPUSHARE.device, GPUSHARE.pod_units
PATIENCE_S = 10.0
DEFAULTS = ExtenderTerms()
_numbers: Iterator[int] = count()


def node(name: str, units: int = 32, devices: int = 2, **more: Any) -> dict[str, Any]:
    amounts = {MEMORY: str(units), COUNT: str(devices), "cpu": "8"}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", **more},
        "status": {"capacity": amounts, "allocatable": dict(amounts)},
    }


def pod(name: str, *amounts: int, on: str = "", resource: str = MEMORY, **more: Any) -> dict[str, Any]:
    spec = {
        "containers": [
            {"name": f"c{place}", "resources": {"limits": {resource: str(units)}}}
            for place, units in enumerate(amounts)
        ],
        **({"nodeName": on} if on else {}),
        **more.pop("spec", {}),
    }
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", **more.pop("meta", {})}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Pending", **more.pop("status", {})}}


def placed(name: str, units: int, on: str, index: int, **more: Any) -> dict[str, Any]:
    """A pod that has its GPU."""
    return pod(name, units, on=on, meta={"annotations": {INDEX: str(index), OF_POD: str(units)}}, **more)


def as_node(thing: dict[str, Any]) -> NodeObject:
    return msgspec.convert(thing, NodeObject)


def as_pod(thing: dict[str, Any]) -> PodObject:
    return msgspec.convert(thing, PodObject)


def view_of(*things: dict[str, Any], contract: Contract = GPUSHARE) -> View:
    """Nodes and pods, as watches show them."""
    made = View([Terms(contract)])
    for thing in things:
        if "spec" in thing:
            made.put_pod(as_pod(thing))
        else:
            made.put_node(as_node(thing))
    return made


class Rig:
    def __init__(self, server: ApiServer, extender: Extender, facts: list[dict[str, Any]]) -> None:
        self.server, self.extender, self.facts = server, extender, facts

    @property
    def view(self) -> View:
        return self.extender.view

    def add(self, *things: dict[str, Any]) -> None:
        for thing in things:
            if "spec" in thing:
                self.server.store.put("pods", thing, thing["metadata"]["namespace"])
            else:
                self.server.store.put("nodes", thing)

    async def seen(self, *things: dict[str, Any]) -> None:
        """Adds them, and waits until the extender has seen them."""
        self.add(*things)
        await self.until(lambda: all(self._knows(thing) for thing in things))

    def _knows(self, thing: dict[str, Any]) -> bool:
        if "spec" not in thing:
            return thing["metadata"]["name"] in self.view.node_names()
        return thing["metadata"]["uid"] in set(self.view.pods())

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await self.server.store.news()

    async def filter(self, thing: dict[str, Any], *names: str) -> FilterResult:
        return await self.extender.filter(ExtenderArgs(as_pod(thing), node_names=list(names)))

    async def bind(self, thing: dict[str, Any], to: str, uid: str = "") -> BindingResult:
        meta = thing["metadata"]
        args = BindingArgs(meta["name"], meta["namespace"], uid or meta["uid"], to)
        return await self.extender.bind(args)

    def stored(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.server.store.get("pods", name, "default")
        return found

    def where(self, name: str) -> tuple[str, str]:
        """The node and the device of a pod, as the API server has it."""
        found = self.stored(name)
        annotations = found["metadata"].get("annotations") or {}
        return found["spec"].get("nodeName", ""), annotations.get(INDEX, "")


@asynccontextmanager
async def running(
    server: ApiServer, *things: dict[str, Any], terms: ExtenderTerms = DEFAULTS, contract: Contract = GPUSHARE
) -> AsyncIterator[Rig]:
    facts: list[dict[str, Any]] = []
    clock = SystemClock()
    client = Client(Access(parse_server(server.url, where="test"), source="test"), clock)
    extender = Extender(
        client, View([Terms(contract)]), terms, lambda event, **more: facts.append({"event": event, **more})
    )
    rig = Rig(server, extender, facts)
    rig.add(*things)
    task = asyncio.create_task(extender.run())
    try:
        await rig.until(lambda: extender.feed.ready)
        await server.watched()
        yield rig
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
