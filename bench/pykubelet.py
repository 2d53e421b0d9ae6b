"""The kubelet's part on grpcio, for machines without Go. It answers the operations the bench asks of the Go program.

Its own calls cost more than what is measured, so ratios taken with it are flatter; the bench says so.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import grpc

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SERVICE = "/v1beta1.DevicePlugin/"


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class _Endpoint:
    def __init__(self, resource: str, generation: int, channel: grpc.aio.Channel) -> None:
        self.resource, self.generation, self.channel = resource, generation, channel
        self.registered_ns = self.watch_ns = self.frame_ns = 0
        self.list: Any = None
        self.watching: asyncio.Task[None] | None = None
        self.options = self._unary("GetDevicePluginOptions", pb.Empty, pb.DevicePluginOptions)
        self.allocate = self._unary("Allocate", pb.AllocateRequest, pb.AllocateResponse)
        self.preferred = self._unary(
            "GetPreferredAllocation", pb.PreferredAllocationRequest, pb.PreferredAllocationResponse
        )

    def _unary(self, name: str, request: Any, response: Any) -> Any:
        return self.channel.unary_unary(SERVICE + name, request.SerializeToString, response.FromString)

    async def close(self) -> None:
        if self.watching is not None:
            self.watching.cancel()
            await asyncio.gather(self.watching, return_exceptions=True)
        await self.channel.close(None)


class PyKubelet:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._server: grpc.aio.Server | None = None
        self._endpoints: dict[str, _Endpoint] = {}
        self._generation = 0
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._die()

    async def ask(self, op: str, *, timeout_s: float = 10.0, **fields: Any) -> Any:
        async with asyncio.timeout(timeout_s):
            return await getattr(self, f"_op_{op}")(**fields)

    async def _op_listen(self) -> Any:
        for path in self.directory.iterdir():
            if path.is_socket():
                path.unlink()
        handler = grpc.unary_unary_rpc_method_handler(
            self._register, pb.RegisterRequest.FromString, pb.Empty.SerializeToString
        )
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": handler}),)
        )
        self._server.add_insecure_port(f"unix:{self.directory / 'kubelet.sock'}")
        await self._server.start()
        return {"listening_ns": _now_ns()}

    async def _op_restart(self, down_s: float = 0.0) -> Any:
        await self._die()
        await asyncio.sleep(down_s)
        return await self._op_listen()

    async def _op_registered(self, resource: str, after: int = 0) -> Any:
        found = await self._wait(resource, lambda each: each.generation > after)
        return {"generation": found.generation, "registered_ns": found.registered_ns}

    async def _op_listed(self, resource: str, after: int = 0) -> Any:
        found = await self._wait(resource, lambda each: each.generation > after and each.list is not None)
        return {
            "generation": found.generation,
            "watch_ns": found.watch_ns,
            "frame_ns": found.frame_ns,
            "devices": len(found.list.devices),
            "bytes": found.list.ByteSize(),
        }

    async def _op_devices(self, resource: str) -> Any:
        return {"devices": [{"ID": each.ID} for each in self._endpoints[resource].list.devices]}

    async def _op_allocate(self, resource: str, ids: list[str], count: int, warmup: int = 0) -> Any:
        endpoint, ask = self._endpoints[resource], _allocation(ids)
        return {"spread": await _repeat(lambda: endpoint.allocate(ask), count, warmup)}

    async def _op_admit(self, resource: str, available: list[str], size: int, count: int, warmup: int = 0) -> Any:
        endpoint = self._endpoints[resource]
        ask = pb.PreferredAllocationRequest(
            container_requests=[
                pb.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=size)
            ]
        )

        async def admit() -> None:
            answer = await endpoint.preferred(ask)
            await endpoint.allocate(_allocation(answer.container_responses[0].deviceIDs))

        return {"spread": await _repeat(admit, count, warmup)}

    async def _op_flight(self, resource: str, ids: list[str], in_flight: int, duration_s: float) -> Any:
        endpoint, ask = self._endpoints[resource], _allocation(ids)
        start = time.perf_counter()

        async def caller() -> int:
            made = 0
            while time.perf_counter() - start < duration_s:
                await endpoint.allocate(ask)
                made += 1
            return made

        made = sum(await asyncio.gather(*(caller() for _ in range(in_flight))))
        return {"calls_per_s": made / (time.perf_counter() - start)}

    async def _register(self, request: Any, context: Any) -> Any:
        channel = grpc.aio.insecure_channel(f"unix:{self.directory / request.endpoint}")
        self._generation += 1
        endpoint = _Endpoint(request.resource_name, self._generation, channel)
        try:
            await endpoint.options(pb.Empty())
        except grpc.aio.AioRpcError as error:
            await channel.close(None)
            await context.abort(grpc.StatusCode.UNKNOWN, f"failed to get device plugin options: {error.details()}")
        endpoint.registered_ns = _now_ns()
        endpoint.watching = asyncio.create_task(self._follow(endpoint))
        async with self._changed:
            self._endpoints[request.resource_name] = endpoint
            self._changed.notify_all()
        return pb.Empty()

    async def _follow(self, endpoint: _Endpoint) -> None:
        watch = endpoint.channel.unary_stream(
            f"{SERVICE}ListAndWatch", pb.Empty.SerializeToString, pb.ListAndWatchResponse.FromString
        )
        endpoint.watch_ns = _now_ns()
        async for frame in watch(pb.Empty()):
            endpoint.frame_ns = endpoint.frame_ns or _now_ns()
            async with self._changed:
                endpoint.list = frame
                self._changed.notify_all()

    async def _wait(self, resource: str, ready: Callable[[_Endpoint], bool]) -> _Endpoint:
        async with self._changed:
            while True:
                found = self._endpoints.get(resource)
                if found is not None and ready(found):
                    return found
                await self._changed.wait()

    async def _die(self) -> None:
        endpoints, self._endpoints = self._endpoints, {}
        for endpoint in endpoints.values():
            await endpoint.close()
        if self._server is not None:
            await self._server.stop(None)
            self._server = None


def _allocation(ids: list[str]) -> Any:
    return pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])


async def _repeat(call: Callable[[], Awaitable[object]], count: int, warmup: int) -> dict[str, float]:
    for _ in range(warmup):
        await call()
    sample = []
    for _ in range(count):
        start = time.perf_counter()
        await call()
        sample.append((time.perf_counter() - start) * 1e6)
    sample.sort()
    return {"p50_us": sample[len(sample) // 2], "p99_us": sample[int(len(sample) * 0.99)]}
