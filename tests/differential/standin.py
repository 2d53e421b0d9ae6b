"""The world of the stand-in: a kubelet in this process, made for one scenario."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from fairlead.standin import Container, Kubelet, KubeletPanicked, Pod, Timings
from fairlead.standin._gen import podresources_v1_pb2 as pr
from tests.differential.world import ENV, NOTE, PLACE, PodSpec

# What comes of a wait is compared, not how long it takes.
TIMINGS = Timings(dial_s=0.5, retry_s=0.2)
GRACE_S = 0.3
ROUNDS = 20


class StandIn:
    patience_s = 5.0

    def __init__(self, root: Path, timings: Timings) -> None:
        self._kubelet = Kubelet(root, timings=timings, rate_limit=False)

    @property
    def plugin_dir(self) -> Path:
        return self._kubelet.plugin_dir

    @property
    def registry_dir(self) -> Path:
        return self._kubelet.registry_dir

    @property
    def podresources(self) -> Path:
        return self._kubelet.podresources_socket

    @property
    def directories(self) -> list[str]:
        return [str(self.plugin_dir), str(self.registry_dir)]

    def seen_from_inside(self, path: Path) -> Path:
        return path

    async def stop_kubelet(self) -> None:
        await self._kubelet.stop()

    async def start_kubelet(self, *, reboot: bool = False) -> None:
        await self._kubelet.start(reboot=reboot)

    async def is_alive(self) -> bool:
        return self._kubelet.is_running

    async def revive(self) -> None:
        """Its time is over with the scenario that crashed it."""

    async def outlast(self) -> None:
        await asyncio.sleep(GRACE_S + 0.1)  # time itself is what it is about

    async def settle(self) -> None:
        """Asks a few times over a socket: everything that was under way in this loop has its turn meanwhile."""
        async with grpc.aio.insecure_channel(f"unix:{self.podresources}") as channel:
            call = channel.unary_unary(
                "/v1.PodResourcesLister/GetAllocatableResources",
                request_serializer=pr.AllocatableResourcesRequest.SerializeToString,
                response_deserializer=pr.AllocatableResourcesResponse.FromString,
            )
            for _ in range(ROUNDS):
                await call(pr.AllocatableResourcesRequest())

    async def run_pod(self, pod: PodSpec) -> None:
        with suppress(KubeletPanicked):
            await self._kubelet.run_pod(pod.name, pod.containers, init=pod.init, sidecars=pod.sidecars, start=pod.image)

    async def look(self, pod: str) -> dict[str, Any] | None:
        found = self._find(pod)
        if found is None:
            return None
        seen: dict[str, Any] = {"phase": found.phase}
        if found.reason:
            seen |= {"reason": found.reason, "message": found.message}
        if found.is_active:
            seen["containers"] = {name: _state(one) for name, one in found.containers.items()}
        return seen

    async def uid(self, pod: str) -> str:
        return self._pod(pod).uid

    async def received(self, pod: str, container: str) -> dict[str, Any]:
        got = self._pod(pod).containers[container]
        return {
            "env": {key: value for key, value in got.env.items() if key.startswith(ENV)},
            "mounts": [
                {"container": one.container_path, "host": one.host_path, "readonly": one.read_only}
                for path, one in sorted(got.mounts.items())
                if path.startswith(PLACE)
            ],
            "devices": [
                {"container": one.container_path, "host": one.host_path, "permissions": one.permissions}
                for _, one in sorted(got.nodes.items())
            ],
            "annotations": {key: value for key, value in got.annotations.items() if key.startswith(NOTE)},
            "cdi": sorted(got.cdi),
        }

    async def health(self, pod: str) -> dict[str, Any]:
        return self._kubelet.allocated_status(self._pod(pod))

    async def crash(self, pod: str, container: str) -> None:
        await self._kubelet.restart_container(self._pod(pod), container)

    async def finish(self, pod: str) -> None:
        self._kubelet.finish_pod(self._pod(pod))

    async def delete(self, pod: str) -> None:
        if (found := self._find(pod)) is not None:
            await self._kubelet.delete_pod(found)

    async def forget(self, pod: str) -> None:
        await self.delete(pod)

    async def numbers(self, resource: str) -> list[int] | None:
        node = self._kubelet.node()
        if resource not in node.capacity:
            return None
        return [node.allocatable.get(resource, -1), node.capacity[resource]]

    async def offer_cdi(self, names: list[str]) -> None:
        """Nothing is injected here, so nothing has to be known."""

    def _find(self, name: str) -> Pod | None:
        return next((pod for pod in self._kubelet.pods if pod.name == name), None)

    def _pod(self, name: str) -> Pod:
        found = self._find(name)
        assert found is not None, f"no pod {name}"
        return found


@asynccontextmanager
async def standin(root: Path, *, long: bool = False) -> AsyncIterator[StandIn]:
    world = StandIn(root, replace(TIMINGS, grace_s=GRACE_S) if long else TIMINGS)
    await world.start_kubelet()
    try:
        yield world
    finally:
        await world.stop_kubelet()


def _state(container: Container) -> dict[str, Any]:
    seen: dict[str, Any] = {"state": container.state}
    if container.state == "waiting":
        seen |= {"reason": container.reason, "message": container.message}
    elif container.kind != "init":
        seen["restarts"] = max(0, container.starts - 1)
    return seen
