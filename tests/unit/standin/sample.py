"""A small device plugin on grpc.aio, in the shape of the one the kubelet's own tests use."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin._gen import pluginregistration_v1_pb2 as reg
from fairlead.standin.changes import Changes

RESOURCE = "example.com/resource"
LIST_END = object()


def device(i: str, health: str = "Healthy", *nodes: int) -> dp.Device:
    topology = dp.TopologyInfo(nodes=[dp.NUMANode(ID=node) for node in nodes]) if nodes else None
    return dp.Device(ID=i, health=health, topology=topology)


def devices(*ids: str) -> list[dp.Device]:
    return [device(i) for i in ids]


class SamplePlugin:
    """Serves a list that the test changes; notes every call it gets."""

    def __init__(
        self,
        directory: Path,
        listed: Iterable[dp.Device] = (),
        *,
        name: str = "dp.sock",
        resource: str = RESOURCE,
        options: dp.DevicePluginOptions | None = None,
    ) -> None:
        self.directory = directory
        self.path = directory / name
        self.name = name
        self._generation = 0
        self._changes = Changes()
        self.resource = resource
        self.options = options or dp.DevicePluginOptions()
        self.calls: list[tuple[str, Any]] = []
        self.fail: dict[str, str] = {}
        self.garbage: set[str] = set()
        self.hold: dict[str, asyncio.Event] = {}
        self.answer: Callable[[list[str]], dp.ContainerAllocateResponse | None] = self.env_answer
        self.preferred: Callable[[dp.ContainerPreferredAllocationRequest], list[str] | None] = lambda _: None
        self.info: reg.PluginInfo | None = None
        self.notified: asyncio.Queue[reg.RegistrationStatus] = asyncio.Queue()
        self._list = list(listed)
        self._streams: set[asyncio.Queue[object]] = set()
        self._server: grpc.aio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.serve()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def serve(self) -> None:
        """Start, or start again under a new name: gRPC unlinks the old name some time after its server stopped."""
        if self._server is not None:
            await self.stop()
            self._generation += 1
            self.path = self.directory / f"{self._generation}{self.name}"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        self._server.add_generic_rpc_handlers(tuple(self._handlers()))
        self._server.add_insecure_port(f"unix:{self.path}")
        await self._server.start()

    async def stop(self) -> None:
        """Go away as a process does: every stream breaks."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    async def register(self, **changes: str) -> None:
        fields = {"version": "v1beta1", "endpoint": self.path.name, "resource_name": self.resource, **changes}
        await register(self.directory, dp.RegisterRequest(**fields, options=self.options))

    def publish(self, *listed: dp.Device) -> None:
        self._list = list(listed)
        for stream in self._streams:
            stream.put_nowait(None)

    def end_streams(self) -> None:
        for stream in self._streams:
            stream.put_nowait(LIST_END)

    async def wait_for_calls(self, method: str, count: int = 1) -> list[Any]:
        await self._changes.wait_for(lambda: len(self.made(method)) >= count, timeout_s=10)
        return self.made(method)

    def made(self, method: str) -> list[Any]:
        return [request for name, request in self.calls if name == method]

    def env_answer(self, ids: list[str]) -> dp.ContainerAllocateResponse | None:
        return dp.ContainerAllocateResponse(
            envs={"IDS": ",".join(sorted(ids))},
            mounts=[dp.Mount(container_path=f"/tmp/{i}", host_path=f"/tmp/{i}") for i in ids],
        )

    def _handlers(self) -> Iterable[Any]:
        plugin: Mapping[str, tuple[Any, Any, Any]] = {
            "GetDevicePluginOptions": (self._get_options, dp.Empty, dp.DevicePluginOptions),
            "GetPreferredAllocation": (self._prefer, dp.PreferredAllocationRequest, dp.PreferredAllocationResponse),
            "Allocate": (self._allocate, dp.AllocateRequest, dp.AllocateResponse),
            "PreStartContainer": (self._pre_start, dp.PreStartContainerRequest, dp.PreStartContainerResponse),
        }
        unary = {method: self._unary(method, *parts) for method, parts in plugin.items()}
        unary["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
            self._list_and_watch,
            request_deserializer=dp.Empty.FromString,
            response_serializer=self._writer("ListAndWatch", dp.ListAndWatchResponse),
        )
        yield grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", unary)
        if self.info is not None:
            watched = {
                "GetInfo": self._unary("GetInfo", self._get_info, reg.InfoRequest, reg.PluginInfo),
                "NotifyRegistrationStatus": self._unary(
                    "NotifyRegistrationStatus",
                    self._notify,
                    reg.RegistrationStatus,
                    reg.RegistrationStatusResponse,
                ),
            }
            yield grpc.method_handlers_generic_handler("pluginregistration.Registration", watched)

    def _unary(self, method: str, answer: Any, request: Any, reply: Any) -> Any:
        async def handle(message: Any, context: Any) -> Any:
            self._note(method, message)
            if method in self.hold:
                await self.hold[method].wait()
            if method in self.fail:
                await context.abort(grpc.StatusCode.UNKNOWN, self.fail[method])
            return answer(message)

        return grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=request.FromString, response_serializer=self._writer(method, reply)
        )

    def _writer(self, method: str, reply: Any) -> Callable[[Any], bytes]:
        """Writes the message; for a method in `garbage`, bytes that are none."""
        return lambda message: b"\x0a\xff\xff" if method in self.garbage else reply.SerializeToString(message)

    async def _list_and_watch(self, request: dp.Empty, context: Any) -> AsyncIterator[dp.ListAndWatchResponse]:
        self._note("ListAndWatch", request)
        if "ListAndWatch" in self.fail:
            await context.abort(grpc.StatusCode.UNKNOWN, self.fail["ListAndWatch"])
        stream: asyncio.Queue[object] = asyncio.Queue()
        self._streams.add(stream)
        try:
            yield dp.ListAndWatchResponse(devices=self._list)
            while await stream.get() is not LIST_END:
                yield dp.ListAndWatchResponse(devices=self._list)
        finally:
            self._streams.discard(stream)

    def _note(self, method: str, request: Any) -> None:
        self.calls.append((method, request))
        self._changes.notify()

    def _get_options(self, _: dp.Empty) -> dp.DevicePluginOptions:
        return self.options

    def _prefer(self, request: dp.PreferredAllocationRequest) -> dp.PreferredAllocationResponse:
        ids = self.preferred(request.container_requests[0])
        answers = [] if ids is None else [dp.ContainerPreferredAllocationResponse(deviceIDs=ids)]
        return dp.PreferredAllocationResponse(container_responses=answers)

    def _allocate(self, request: dp.AllocateRequest) -> dp.AllocateResponse:
        answer = self.answer(list(request.container_requests[0].devices_ids))
        return dp.AllocateResponse(container_responses=[] if answer is None else [answer])

    def _pre_start(self, _: dp.PreStartContainerRequest) -> dp.PreStartContainerResponse:
        return dp.PreStartContainerResponse()

    def _get_info(self, _: reg.InfoRequest) -> reg.PluginInfo:
        assert self.info is not None
        return self.info

    def _notify(self, status: reg.RegistrationStatus) -> reg.RegistrationStatusResponse:
        self.notified.put_nowait(status)
        return reg.RegistrationStatusResponse()


async def register(directory: Path, request: dp.RegisterRequest) -> None:
    async with grpc.aio.insecure_channel(f"unix:{directory / 'kubelet.sock'}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=dp.RegisterRequest.SerializeToString,
            response_deserializer=dp.Empty.FromString,
        )
        await call(request)
