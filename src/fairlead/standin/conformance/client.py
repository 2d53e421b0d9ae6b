"""A client for one plugin's socket that asks what no kubelet would. Owns the channel.

Every question has a deadline: a plugin that hangs is an answer too.
"""

import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.clock import running
from fairlead.standin.conformance.timing import Deadline, LoadAwareTimer
from fairlead.standin.errors import CallFailed
from fairlead.standin.plugin import open_channel

M = TypeVar("M", bound=Message)
Metadata = Sequence[tuple[str, str]]
_SERVICE = "/v1beta1.DevicePlugin/"
# Statuses that gRPC makes up when no answer came.
SILENT = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a status, its text, and the bytes of a good answer."""

    code: grpc.StatusCode
    details: str = ""
    body: bytes = b""

    @property
    def ok(self) -> bool:
        return self.code is grpc.StatusCode.OK

    @property
    def silent(self) -> bool:
        """No answer at all: the connection broke, or the time was over."""
        return self.code in SILENT

    def __str__(self) -> str:
        return "OK" if self.ok else f"{self.code.name}: {self.details[:120]}"

    def read(self, kind: type[M]) -> M:
        if not self.ok:
            raise CallFailed(self.code, self.details)
        try:
            return kind.FromString(self.body)
        except DecodeError:
            raise CallFailed(grpc.StatusCode.INTERNAL, f"the answer is no {kind.DESCRIPTOR.name}") from None


class Client:
    def __init__(self, channel: grpc.aio.Channel, deadline_s: float, timer: LoadAwareTimer, late: float) -> None:
        self._channel = channel
        self._deadline_s = deadline_s
        self._timer = timer
        self._late = late

    async def ask(
        self, method: str, body: Message | bytes = b"", *, metadata: Metadata = (), in_flight: int = 1
    ) -> Answer:
        """One question, in bytes if need be. `method` is of the plugin's service unless it starts with a slash.

        A plugin may answer one call after the other: the limit is for all that are in flight.
        """
        raw = body if isinstance(body, bytes) else body.SerializeToString()
        call: Any = self._channel.unary_unary(
            method if method.startswith("/") else _SERVICE + method,
            request_serializer=None,
            response_deserializer=None,
        )
        limit = Deadline(self._timer, self._deadline_s * in_flight, self._late)
        try:
            async with running(call(raw, metadata=tuple(metadata), wait_for_ready=True)) as (asked,):
                if not await limit.wait(asked):
                    return Answer(grpc.StatusCode.DEADLINE_EXCEEDED, limit.never)
                if limit.is_late:
                    return Answer(grpc.StatusCode.DEADLINE_EXCEEDED, limit.took)
                return Answer(grpc.StatusCode.OK, body=asked.result())
        except grpc.aio.AioRpcError as error:
            return Answer(error.code(), error.details() or "")

    async def options(self) -> dp.DevicePluginOptions:
        return (await self.ask("GetDevicePluginOptions")).read(dp.DevicePluginOptions)

    async def allocate(self, *containers: Iterable[str], **how: Any) -> Answer:
        return await self.ask("Allocate", allocate_request(*containers), **how)

    async def must_allocate(self, *containers: Iterable[str], **how: Any) -> list[dp.ContainerAllocateResponse]:
        """The answers to an Allocate that must go well."""
        return list((await self.allocate(*containers, **how)).read(dp.AllocateResponse).container_responses)

    async def prefer(self, *asks: dp.ContainerPreferredAllocationRequest) -> list[list[str]]:
        answer = await self.ask("GetPreferredAllocation", dp.PreferredAllocationRequest(container_requests=asks))
        return [list(each.deviceIDs) for each in answer.read(dp.PreferredAllocationResponse).container_responses]

    @asynccontextmanager
    async def lists(self) -> AsyncIterator[Any]:
        """An open ListAndWatch; `await stream.read()` for the next list."""
        method: Any = self._channel.unary_stream(
            f"{_SERVICE}ListAndWatch",
            request_serializer=dp.Empty.SerializeToString,
            response_deserializer=dp.ListAndWatchResponse.FromString,
        )
        stream = method(dp.Empty(), wait_for_ready=True)
        try:
            yield stream
        finally:
            stream.cancel()


@asynccontextmanager
async def connect(
    path: Path, deadline_s: float, timer: LoadAwareTimer, late: float, authority: str = "localhost"
) -> AsyncIterator[Client]:
    channel = open_channel(path, authority, 0.1)
    try:
        yield Client(channel, deadline_s, timer, late)
    finally:
        await channel.close(None)


def allocate_request(*containers: Iterable[str]) -> dp.AllocateRequest:
    return dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=ids) for ids in containers])


def prefer_request(ids: Iterable[str], size: int, must: Iterable[str] = ()) -> dp.ContainerPreferredAllocationRequest:
    return dp.ContainerPreferredAllocationRequest(
        available_deviceIDs=ids, must_include_deviceIDs=must, allocation_size=size
    )


def accepts(path: Path) -> bool:
    """Whether a server listens there, right now."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True  # its backlog is full: a server listens
        except OSError:
            return False
        return True
