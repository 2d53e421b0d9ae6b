"""The kubelet's own sockets: binding them where plugins look, and the two services behind them.

Owns the gRPC servers. What an answer says is decided by those it asks.
"""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin._gen import podresources_v1_pb2 as pr
from fairlead.standin.errors import RateLimited, Rejected
from fairlead.standin.podresources import RATE_LIMITED, Limiter, without_topology
from fairlead.standin.relay import Relay

MAX_PATH_BYTES = 107
Context = grpc.aio.ServicerContext[Any, Any]
Answer = Callable[[Any], Awaitable[Any]]
# service -> method -> (who answers, request class, reply class)
Services = Mapping[str, Mapping[str, tuple[Answer, Any, Any]]]


def clean(directory: Path) -> None:
    """Remove every socket that lies directly in the directory, as the kubelet does when it starts.

    Symbolic links to sockets go too; files, directories and what is in them stay.
    """
    for entry in directory.iterdir():
        try:
            mode = entry.stat().st_mode
        except OSError:
            continue  # a dangling link stays
        if stat.S_ISSOCK(mode):
            entry.unlink(missing_ok=True)  # its plugin may remove it just now


class Socket:
    """One gRPC server on one path. The file stays behind when the server stops, as a killed kubelet's does."""

    def __init__(self, path: Path, scratch: Path, services: Services) -> None:
        if len(os.fsencode(path)) > MAX_PATH_BYTES:
            raise ValueError(f"{path} is too long for a unix socket ({MAX_PATH_BYTES} bytes); choose a shorter root")
        self._scratch = scratch
        self._relay = Relay(path, scratch)
        self._server = grpc.aio.server()
        self._stopping: asyncio.Future[None] | None = None
        for name, methods in services.items():
            handlers = {
                method: grpc.unary_unary_rpc_method_handler(
                    _guard(answer),
                    request_deserializer=request.FromString,
                    response_serializer=reply.SerializeToString,
                )
                for method, (answer, request, reply) in methods.items()
            }
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))

    async def start(self) -> None:
        # gRPC unlinks the path it bound some time after the server stopped, which would take the next server's file
        # away. So it binds a scratch name, and plugins come by the relay.
        self._server.add_insecure_port(f"unix:{self._scratch}")
        await self._server.start()
        self._relay.start()

    async def stop(self) -> None:
        # Once, and to its end: a stop that is cancelled half-way would be the end of the next one's wait too.
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._end())
        await asyncio.shield(self._stopping)

    async def _end(self) -> None:
        await self._relay.close()
        await self._server.stop(None)


def _guard(answer: Answer) -> Callable[[Any, Context], Awaitable[Any]]:
    async def handle(request: Any, context: Context) -> Any:
        try:
            return await answer(request)
        except Rejected as error:
            await context.abort(error.code, str(error))

    return handle


def registration_service(register: Callable[[dp.RegisterRequest], Awaitable[None]]) -> Services:
    async def answer(request: dp.RegisterRequest) -> dp.Empty:
        await register(request)
        return dp.Empty()

    return {"v1beta1.Registration": {"Register": (answer, dp.RegisterRequest, dp.Empty)}}


def podresources_service(
    list_pods: Callable[[], pr.ListPodResourcesResponse],
    get_pod: Callable[[str, str], pr.PodResources],
    get_allocatable: Callable[[], pr.AllocatableResourcesResponse],
    limiter: Limiter | None,
) -> Services:
    """The service in v1, and List in v1alpha1. One limit for all methods; None for no limit."""

    def limited(make: Callable[[Any], Any]) -> Answer:
        async def answer(request: Any) -> Any:
            if limiter is not None and not limiter.take():
                raise RateLimited(RATE_LIMITED)
            return make(request)

        return answer

    def get(request: pr.GetPodResourcesRequest) -> pr.GetPodResourcesResponse:
        return pr.GetPodResourcesResponse(pod_resources=get_pod(request.pod_name, request.pod_namespace))

    listing = (pr.ListPodResourcesRequest, pr.ListPodResourcesResponse)
    allocatable = (pr.AllocatableResourcesRequest, pr.AllocatableResourcesResponse)
    return {
        "v1.PodResourcesLister": {
            "List": (limited(lambda _: list_pods()), *listing),
            "GetAllocatableResources": (limited(lambda _: get_allocatable()), *allocatable),
            "Get": (limited(get), pr.GetPodResourcesRequest, pr.GetPodResourcesResponse),
        },
        "v1alpha1.PodResourcesLister": {"List": (limited(lambda _: without_topology(list_pods())), *listing)},
    }
