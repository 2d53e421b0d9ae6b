"""A device plugin that does as it is told and writes down every call it gets.

On grpcio, so that neither world talks to Fairlead's own code. Must not know which kubelet is on the other end.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin._gen import pluginregistration_v1_pb2 as reg

_END = object()
_BREAK = object()
_generations = itertools.count()
REGISTER_S = 30.0
GARBAGE = b"\x0a\xff\xff"  # a field that is longer than what follows
Answer = Callable[[list[str]], list[dp.ContainerAllocateResponse]]
Prefer = Callable[[dp.ContainerPreferredAllocationRequest], list[list[str]]]


def device(i: str, health: str = "Healthy", *nodes: int) -> dp.Device:
    topology = dp.TopologyInfo(nodes=[dp.NUMANode(ID=node) for node in nodes]) if nodes else None
    return dp.Device(ID=i, health=health, topology=topology)


def tell_ids(ids: list[str]) -> list[dp.ContainerAllocateResponse]:
    return [dp.ContainerAllocateResponse(envs={"DIFF_IDS": ",".join(sorted(ids))})]


class Plugin:
    """One plugin. What it answers may be changed at any time; `calls` is what it has heard."""

    def __init__(self, directory: Path, name: str, resource: str, listed: Sequence[dp.Device]) -> None:
        self.directory = directory
        self.name = name
        self.resource = resource
        self.options = dp.DevicePluginOptions()
        self.calls: list[tuple[str, Any]] = []
        self.fail: dict[str, str] = {}
        self.code = grpc.StatusCode.UNKNOWN  # of what fails
        self.garbage: set[str] = set()  # methods that answer with bytes that are no message
        self.missing: set[str] = set()  # methods that it does not have
        self.answer: Answer = tell_ids
        self.prefer: Prefer = lambda _: []
        # Awaited in the middle of a call.
        self.during: dict[str, Callable[[], Awaitable[None]]] = {}
        self.info: reg.PluginInfo | None = None
        self.paths: list[Path] = []
        self._list = list(listed)
        self._streams: set[asyncio.Queue[object]] = set()
        self._server: grpc.aio.Server | None = None

    @property
    def path(self) -> Path:
        return self.paths[-1]

    async def serve(self, place: str = "") -> None:
        """Serve under a fresh name: gRPC unlinks an old one some time after its server has stopped."""
        await self.stop()
        path = self.directory / place / f"diff{next(_generations)}.sock"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.paths.append(path)
        self._server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        self._server.add_generic_rpc_handlers(tuple(self._handlers()))
        self._server.add_insecure_port(f"unix:{path}")
        await self._server.start()

    async def stop(self) -> None:
        """Go away as a process does: every stream breaks."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    async def register(self, kubelet_dir: Path | None = None, **fields: Any) -> str:
        """Ask to be registered. The answer is "ok", or the status that came back."""
        told = {"version": "v1beta1", "endpoint": self.path.name, "resource_name": self.resource, **fields}
        async with grpc.aio.insecure_channel(f"unix:{(kubelet_dir or self.directory) / 'kubelet.sock'}") as channel:
            call = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=dp.RegisterRequest.SerializeToString,
                response_deserializer=dp.Empty.FromString,
            )
            try:
                await call(dp.RegisterRequest(**told), timeout=REGISTER_S, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name}: {error.details()}"
        return "ok"

    def publish(self, *listed: dp.Device) -> None:
        self._list = list(listed)
        self._tell(None)

    def end_streams(self) -> None:
        self._tell(_END)

    def break_streams(self) -> None:
        self._tell(_BREAK)

    def heard(self, method: str) -> int:
        return sum(1 for name, _ in self.calls if name == method)

    def _tell(self, what: object) -> None:
        for stream in self._streams:
            stream.put_nowait(what)

    # What it serves.

    def _handlers(self) -> Iterator[Any]:
        unary: Mapping[str, tuple[Any, Any, Any]] = {
            "GetDevicePluginOptions": (lambda _: self.options, dp.Empty, dp.DevicePluginOptions),
            "GetPreferredAllocation": (self._prefer, dp.PreferredAllocationRequest, dp.PreferredAllocationResponse),
            "Allocate": (self._allocate, dp.AllocateRequest, dp.AllocateResponse),
            "PreStartContainer": (
                lambda _: dp.PreStartContainerResponse(),
                dp.PreStartContainerRequest,
                dp.PreStartContainerResponse,
            ),
        }
        made = {name: self._unary(name, *parts) for name, parts in unary.items() if name not in self.missing}
        if "ListAndWatch" not in self.missing:
            made["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
                self._list_and_watch,
                request_deserializer=dp.Empty.FromString,
                response_serializer=self._writer("ListAndWatch", dp.ListAndWatchResponse),
            )
        yield grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", made)
        if self.info is not None:
            told = reg.RegistrationStatusResponse
            watched = {
                "GetInfo": self._unary("GetInfo", lambda _: self.info, reg.InfoRequest, reg.PluginInfo),
                "NotifyRegistrationStatus": self._unary(
                    "NotifyRegistrationStatus", lambda _: told(), reg.RegistrationStatus, told
                ),
            }
            yield grpc.method_handlers_generic_handler("pluginregistration.Registration", watched)

    def _unary(self, method: str, answer: Any, request: Any, reply: Any) -> Any:
        async def handle(message: Any, context: Any) -> Any:
            self.calls.append((method, _plain(message)))
            if method in self.during:
                await self.during[method]()
            if method in self.fail:
                await context.abort(self.code, self.fail[method])
            return answer(message)

        return grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=request.FromString, response_serializer=self._writer(method, reply)
        )

    def _writer(self, method: str, reply: Any) -> Callable[[Any], bytes]:
        def write(message: Any) -> bytes:
            return GARBAGE if method in self.garbage else reply.SerializeToString(message)

        return write

    async def _list_and_watch(self, request: dp.Empty, context: Any) -> AsyncIterator[dp.ListAndWatchResponse]:
        self.calls.append(("ListAndWatch", _plain(request)))
        if "ListAndWatch" in self.fail:
            await context.abort(grpc.StatusCode.UNKNOWN, self.fail["ListAndWatch"])
        stream: asyncio.Queue[object] = asyncio.Queue()
        self._streams.add(stream)
        try:
            yield dp.ListAndWatchResponse(devices=self._list)
            while (word := await stream.get()) is not _END:
                if word is _BREAK:
                    await context.abort(grpc.StatusCode.UNKNOWN, "the list is broken")
                yield dp.ListAndWatchResponse(devices=self._list)
        finally:
            self._streams.discard(stream)

    def _prefer(self, request: dp.PreferredAllocationRequest) -> dp.PreferredAllocationResponse:
        answers = self.prefer(request.container_requests[0])
        return dp.PreferredAllocationResponse(
            container_responses=[dp.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in answers]
        )

    def _allocate(self, request: dp.AllocateRequest) -> dp.AllocateResponse:
        ids = list(request.container_requests[0].devices_ids)
        return dp.AllocateResponse(container_responses=self.answer(ids))


def _plain(message: Any) -> Any:
    """The fields that were set. The order of ids is random with both kubelets, so it is taken out."""
    return _sorted(MessageToDict(message, preserving_proto_field_name=True))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        items = [_sorted(item) for item in value]
        return sorted(items) if all(isinstance(item, str) for item in items) else items
    return value
