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
from fairlead.standin.errors import Rejected
from fairlead.standin.podresources import REFUSED, Limiter, without_topology

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
            entry.unlink()


class Socket:
    """One gRPC server on one path. The file stays behind when the server stops, as a killed kubelet's does."""

    def __init__(self, path: Path, scratch: Path, services: Services) -> None:
        if len(os.fsencode(path)) > MAX_PATH_BYTES:
            raise ValueError(f"{path} is too long for a unix socket ({MAX_PATH_BYTES} bytes); choose a shorter root")
        self._path = path
        self._scratch = scratch
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
        # away. So it binds a scratch name, and plugins get a link to the same socket: a plain creation to watchers.
        self._server.add_insecure_port(f"unix:{self._scratch}")
        await self._server.start()
        self._path.unlink(missing_ok=True)
        os.link(self._scratch, self._path)
        self._scratch.unlink()

    async def stop(self) -> None:
        # Once, and to its end: a stop that is cancelled half-way would be the end of the next one's wait too.
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._server.stop(None))
        await asyncio.shield(self._stopping)


def _guard(answer: Answer) -> Callable[[Any, Context], Awaitable[Any]]:
    async def handle(request: Any, context: Context) -> Any:
        try:
            return await answer(request)
        except Limited:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, REFUSED)
        except Rejected as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))

    return handle


class Limited(Exception):
    """Too many questions to the pod-resources service."""


def registration_service(
    register: Callable[[dp.RegisterRequest], Awaitable[None]],
) -> Services:
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

    def check() -> None:
        if limiter is not None and not limiter.take():
            raise Limited

    async def answer_list(_: pr.ListPodResourcesRequest) -> pr.ListPodResourcesResponse:
        check()
        return list_pods()

    async def answer_list_alpha(_: pr.ListPodResourcesRequest) -> pr.ListPodResourcesResponse:
        check()
        return without_topology(list_pods())

    async def answer_allocatable(_: pr.AllocatableResourcesRequest) -> pr.AllocatableResourcesResponse:
        check()
        return get_allocatable()

    async def answer_get(request: pr.GetPodResourcesRequest) -> pr.GetPodResourcesResponse:
        check()
        return pr.GetPodResourcesResponse(pod_resources=get_pod(request.pod_name, request.pod_namespace))

    listing = (pr.ListPodResourcesRequest, pr.ListPodResourcesResponse)
    return {
        "v1.PodResourcesLister": {
            "List": (answer_list, *listing),
            "GetAllocatableResources": (
                answer_allocatable,
                pr.AllocatableResourcesRequest,
                pr.AllocatableResourcesResponse,
            ),
            "Get": (answer_get, pr.GetPodResourcesRequest, pr.GetPodResourcesResponse),
        },
        "v1alpha1.PodResourcesLister": {"List": (answer_list_alpha, *listing)},
    }
