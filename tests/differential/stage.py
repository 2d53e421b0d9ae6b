"""Where a scenario plays: its plugins and pods on one world, and the trace of what it saw there.

Owns the trace and how it is made comparable. Must not know which world it is.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict

from fairlead.standin import checkpoint
from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin._gen import podresources_v1_pb2 as pr
from tests.differential.plugin import Plugin, device
from tests.differential.trace import Trace, comparable, in_order
from tests.differential.world import Limits, PodSpec, World

T = TypeVar("T")
LOOK_S = 0.05
ASK_S = 10.0


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    play: Callable[[Stage], Awaitable[None]]
    group: str  # the module it is from
    alike: tuple[str, ...]  # devices between which the kubelet chooses at random, and which only so differ
    alone: bool  # restarts the kubelet, or is disturbed by what others do to it
    long: bool  # takes minutes with the true kubelet

    def __str__(self) -> str:
        return self.name


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *, alike: Iterable[str] = (), alone: bool = False, long: bool = False
) -> Callable[[Callable[[Stage], Awaitable[None]]], Callable[[Stage], Awaitable[None]]]:
    """Adds a function to the list that both worlds play. Its name is the scenario's."""

    def add(play: Callable[[Stage], Awaitable[None]]) -> Callable[[Stage], Awaitable[None]]:
        name = play.__name__.replace("_", "-")
        assert name not in SCENARIOS, f"two scenarios are named {name}"
        group = play.__module__.rpartition(".")[2]
        SCENARIOS[name] = Scenario(name, play, group, tuple(alike), alone, long)
        return play

    return add


class Stage:
    def __init__(self, world: World, played: Scenario) -> None:
        self.world = world
        self._scenario = played
        self._trace: Trace = []
        self._plugins: list[Plugin] = []
        self._pods: dict[str, str] = {}  # uid by full name
        mark = secrets.token_hex(3)
        self._prefix = f"{played.name[:30].rstrip('-')}-{mark}"
        self.resource = f"diff.example/{mark}"
        self.other = f"diff.example/{mark}-other"
        self._own: dict[str, str] = {}  # the plain name of each id that is this scenario's alone

    def own(self, name: str) -> str:
        """An id that no other scenario has; the trace has its plain name.

        A kubelet that hears of a changed device looks for the pod to tell by the id alone, whatever the resource is
        (1.36.4, pod_devices.go, getPodAndContainerForDevice). Of two pods with equal ids it may tell the other one.
        """
        full = f"{name}.{self.resource.rpartition('/')[2]}"
        self._own[full] = name
        return full

    # Plugins.

    async def plugin(
        self,
        *listed: str | dp.Device,
        name: str = "plugin",
        resource: str | None = None,
        preferred: bool = False,
        pre_start: bool = False,
        watched: bool = False,
    ) -> Plugin:
        """A plugin that serves and has not registered. An id stands for a healthy device."""
        directory = self.world.registry_dir if watched else self.world.plugin_dir
        devices = [device(one) if isinstance(one, str) else one for one in listed]
        plugin = Plugin(directory, name, resource or self.resource, devices)
        plugin.options = dp.DevicePluginOptions(
            pre_start_required=pre_start, get_preferred_allocation_available=preferred
        )
        self._plugins.append(plugin)
        if not watched:
            await plugin.serve()
        return plugin

    async def ready(self, *listed: str | dp.Device, **more: Any) -> Plugin:
        """A plugin that is registered and whose list the kubelet has."""
        plugin = await self.plugin(*listed, **more)
        assert await plugin.register() == "ok"
        count = sum(1 for one in listed if isinstance(one, str) or one.health == "Healthy")
        await self.until(lambda: self._has(plugin.resource, count), f"{count} devices are listed")
        return plugin

    async def back(self, plugin: Plugin, *listed: str) -> None:
        """The plugin serves anew and registers, after a kubelet has wiped its socket away."""
        await plugin.serve()
        if listed:
            plugin.publish(*map(device, listed))
        self.saw(f"{plugin.name}: register", await plugin.register())
        await self.until(lambda: self._has(plugin.resource, 1), "a device is listed")

    async def _has(self, resource: str, count: int) -> bool:
        return await self._offered(resource) >= count

    async def offers(self, plugin: Plugin, count: int) -> bool:
        """Whether the kubelet has exactly so many healthy devices in its hands."""
        return await self._offered(plugin.resource) == count

    async def _offered(self, resource: str) -> int:
        offered = await self._ask("GetAllocatableResources", pr.AllocatableResourcesRequest)
        return sum(1 for one in offered.devices if one.resource_name == resource)

    # Pods.

    async def run(
        self,
        name: str,
        limits: Limits | int,
        *,
        init: dict[str, Limits] | None = None,
        sidecars: dict[str, Limits] | None = None,
        once: bool = False,
        image: bool = True,
        **containers: Limits,
    ) -> str:
        """A pod whose container `main` asks for this. An integer is a number of the scenario's own resource."""
        asks = {self.resource: limits} if isinstance(limits, int) else limits
        full = f"{self._prefix}-{name}"
        self._pods[full] = ""
        await self.world.run_pod(PodSpec(full, {"main": asks, **containers}, init or {}, sidecars or {}, once, image))
        self._pods[full] = await self.world.uid(full)
        return full

    async def wait_for(self, pod: str, *phases: str) -> None:
        async def there() -> bool:
            seen = await self.world.look(pod)
            return seen is not None and seen["phase"] in phases

        await self.until(there, f"{pod} is {phases}")

    # What is seen goes into the trace.

    def saw(self, what: str, value: Any) -> None:
        self._trace.append([what, value])

    async def saw_pod(self, pod: str, what: str = "") -> None:
        self.saw(f"{what or pod}: pod", await self.world.look(pod))

    async def saw_numbers(self, what: str, allocatable: int, capacity: int, resource: str | None = None) -> None:
        """The node's numbers, once they are what is hoped for or patience is at an end."""
        hope = [allocatable, capacity]
        name = resource or self.resource
        await self.until(lambda: _equals(self.world.numbers(name), hope), must=False)
        self.saw(f"{what}: allocatable and capacity", await self.world.numbers(name))

    async def saw_no_numbers(self, what: str) -> None:
        await self.world.settle()
        self.saw(f"{what}: allocatable and capacity", await self.world.numbers(self.resource))

    async def saw_listed(self, what: str, version: str = "v1") -> None:
        """The pods of this scenario in the answer of pod-resources."""
        answer = await self._ask("List", pr.ListPodResourcesRequest, version)
        ours = [_described(pod) for pod in answer.pod_resources if pod.name in self._pods]
        self.saw(f"{what}: pod-resources List {version}", sorted(ours, key=lambda pod: str(pod["name"])))

    async def saw_offered(self, what: str) -> None:
        answer = await self._ask("GetAllocatableResources", pr.AllocatableResourcesRequest)
        ours = [MessageToDict(one) for one in answer.devices if one.resource_name in {self.resource, self.other}]
        self.saw(f"{what}: pod-resources GetAllocatableResources", in_order(ours))

    async def saw_get(self, what: str, pod: str, namespace: str = "default") -> None:
        fields = {"pod_name": pod, "pod_namespace": namespace}
        try:
            answer = await self._ask("Get", pr.GetPodResourcesRequest, **fields)
        except grpc.aio.AioRpcError as error:
            self.saw(f"{what}: pod-resources Get", f"{error.code().name}: {error.details()}")
        else:
            self.saw(f"{what}: pod-resources Get", _described(answer.pod_resources))

    def saw_checkpoint(self, what: str) -> None:
        data = checkpoint.read(self.world.plugin_dir)
        assert data is not None
        uids = {uid: name for name, uid in self._pods.items()}
        ours = {self.resource, self.other}
        entries = [
            {
                "pod": uids[entry.uid],
                "container": entry.container,
                "resource": entry.resource,
                "devices": {str(node): sorted(ids) for node, ids in sorted(entry.by_node.items())},
                "answer": MessageToDict(dp.ContainerAllocateResponse.FromString(entry.answer)),
            }
            for entry in data.entries or ()
            if entry.uid in uids
        ]
        registered = {name: sorted(ids or ()) for name, ids in data.registered.items() if name in ours}
        self.saw(f"{what}: checkpoint", {"entries": in_order(entries), "registered": registered})

    async def until(
        self, condition: Callable[[], Awaitable[T]], what: str = "", *, must: bool = True, patience_s: float = 0.0
    ) -> None:
        end = time.monotonic() + (60.0 if must else patience_s or self.world.patience_s)
        while True:
            try:
                if await condition():
                    return
            except grpc.aio.AioRpcError:  # a kubelet that is starting
                pass
            if time.monotonic() > end:
                assert not must, f"{self._scenario.name}: not so in time: {what}"
                return
            await asyncio.sleep(LOOK_S)

    async def until_heard(self, plugin: Plugin, method: str, count: int = 1) -> None:
        async def heard() -> bool:
            return plugin.heard(method) >= count

        await self.until(heard, f"{count} times {method}")

    async def _ask(self, method: str, request: Any, version: str = "v1", **fields: str) -> Any:
        answers: dict[str, Any] = {
            "List": pr.ListPodResourcesResponse,
            "GetAllocatableResources": pr.AllocatableResourcesResponse,
            "Get": pr.GetPodResourcesResponse,
        }
        async with grpc.aio.insecure_channel(f"unix:{self.world.podresources}") as channel:
            call = channel.unary_unary(
                f"/{version}.PodResourcesLister/{method}",
                request_serializer=request.SerializeToString,
                response_deserializer=answers[method].FromString,
            )
            return await call(request(**fields), timeout=ASK_S)

    # The end.

    async def close(self) -> Trace:
        """Takes away its plugins and pods. The trace ends with the calls that each plugin heard."""
        for plugin in self._plugins:
            heard = [[method, request] if request else [method] for method, request in _in_turn(plugin.calls)]
            self._trace.append([f"{plugin.name}: calls", heard])
        await self.world.revive()
        await asyncio.gather(*(self.world.delete(pod) for pod in self._pods))
        for plugin in self._plugins:
            await plugin.stop()
            for path in plugin.paths:
                path.unlink(missing_ok=True)
        return self._comparable()

    def _comparable(self) -> Trace:
        names = {uid: "UID" for uid in self._pods.values() if uid}
        names |= {full: full.removeprefix(f"{self._prefix}-") for full in self._pods}
        names |= {path.name: "SOCKET" for plugin in self._plugins for path in plugin.paths}
        names |= dict.fromkeys(self.world.directories, "DIRECTORY")
        names |= self._own
        names |= {self.other: "diff.example/other", self.resource: "diff.example/resource"}
        return comparable(self._trace, names, self._scenario.alike)


async def play(played: Scenario, world: World) -> Trace:
    """One scenario on one world."""
    stage = Stage(world, played)
    try:
        await played.play(stage)
    finally:
        trace = await stage.close()
    return trace


async def _equals(value: Awaitable[Any], hope: Any) -> bool:
    return bool(await value == hope)


def _in_turn(calls: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """A kubelet opens the list beside telling a watched plugin that it is registered: either may come first."""
    turned = list(calls)
    for at in range(len(turned) - 1):
        if (turned[at][0], turned[at + 1][0]) == ("NotifyRegistrationStatus", "ListAndWatch"):
            turned[at : at + 2] = [turned[at + 1], turned[at]]
    return turned


def _described(pod: pr.PodResources) -> dict[str, Any]:
    containers = []
    for container in pod.containers:
        told = MessageToDict(container)
        # The amounts of the machine's own cpus and memory are no part of this.
        containers.append({"name": told["name"], "devices": in_order(told.get("devices", []))})
    return {"name": pod.name, "namespace": pod.namespace, "containers": containers}
