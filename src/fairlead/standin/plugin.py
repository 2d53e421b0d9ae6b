"""One connection to one device plugin: the dial and the five calls.

Owns the channel. Decides nothing about devices; turns gRPC's errors into CallFailed.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Collection
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.calls import Call
from fairlead.standin.clock import within
from fairlead.standin.errors import CallFailed, Rejected, go_text
from fairlead.standin.setup import Setup

T = TypeVar("T")
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
_SERVICE = "/v1beta1.DevicePlugin/"


def open_channel(path: Path, authority: str, redial_s: float) -> grpc.aio.Channel:
    redial_ms = max(100, int(redial_s * 1000))
    return grpc.aio.insecure_channel(
        f"unix:{path}",
        options=[
            ("grpc.default_authority", authority),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", redial_ms),
            ("grpc.min_reconnect_backoff_ms", redial_ms),
            # A new registration is a new connection, even to a path that was dialled before.
            ("grpc.use_local_subchannel_pool", 1),
        ],
    )


def parse(message: Any, raw: bytes) -> Any:
    """The message in these bytes. gRPC's own parsing would hand out None for bytes that are none."""
    try:
        return message.FromString(raw)
    except DecodeError:
        text = "grpc: failed to unmarshal the received message: proto: cannot parse invalid wire-format data"
        raise CallFailed(grpc.StatusCode.INTERNAL, text) from None


class Plugin:
    def __init__(self, resource: str, path: Path, setup: Setup, authority: str) -> None:
        self.resource = resource
        self.path = path
        self.superseded = False
        self._calls, self._clock, self._timings = setup.calls, setup.clock, setup.timings
        self._channel = open_channel(path, authority, setup.timings.redial_s)
        self.closed = False
        self._stream: grpc.aio.UnaryStreamCall[dp.Empty, bytes] | None = None

    async def dial(self) -> None:
        """Wait until the plugin answers; tries again inside the window."""
        try:
            await within(self._clock, self._timings.dial_s, self._channel.channel_ready())
        except TimeoutError:
            raise Rejected("failed to dial device plugin: context deadline exceeded") from None

    async def get_options(self) -> dp.DevicePluginOptions:
        with self._calls.record(self.resource, "GetDevicePluginOptions") as call:
            answer: dp.DevicePluginOptions = await self._ask(
                "GetDevicePluginOptions", dp.Empty(), dp.DevicePluginOptions
            )
            call.summary = (
                f"pre_start={answer.pre_start_required} preferred={answer.get_preferred_allocation_available}"
            )
            return answer

    async def list_and_watch(self) -> AsyncGenerator[dp.ListAndWatchResponse, None]:
        """The lists, as they come. Ends when the stream ends, for whatever reason."""
        with self._calls.record(self.resource, "ListAndWatch") as call:
            try:
                async with aclosing(self._read(call)) as messages:
                    async for message in messages:
                        yield message
            except CallFailed as error:
                call.error = str(error)

    async def _read(self, call: Call) -> AsyncGenerator[dp.ListAndWatchResponse, None]:
        method = self._channel.unary_stream(
            f"{_SERVICE}ListAndWatch", request_serializer=dp.Empty.SerializeToString, response_deserializer=bytes
        )
        self._stream = method(dp.Empty())
        count = 0
        try:
            # At the end of the stream gRPC reads a marker that is not a message.
            while isinstance(raw := await self._translate(self._stream.read()), bytes):
                message = parse(dp.ListAndWatchResponse, raw)
                count += 1
                call.summary = f"lists={count} devices={len(message.devices)}"
                yield message
        finally:
            self._stream.cancel()

    async def prefer(self, available: Collection[str], must: Collection[str], size: int) -> tuple[str, ...] | None:
        """The ids of the first container's answer, None if there was no answer for it."""
        wanted = dp.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        summary = f"{size} of {len(available)}, must include {len(must)}"
        with self._calls.record(self.resource, "GetPreferredAllocation", summary) as call:
            request = dp.PreferredAllocationRequest(container_requests=[wanted])
            answer: dp.PreferredAllocationResponse = await self._ask(
                "GetPreferredAllocation", request, dp.PreferredAllocationResponse
            )
            if not answer.container_responses:
                return None
            ids = tuple(answer.container_responses[0].deviceIDs)
            call.summary += f" -> {','.join(ids)}"
            return ids

    async def allocate(self, ids: Collection[str]) -> dp.AllocateResponse:
        request = dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=ids)])
        with self._calls.record(self.resource, "Allocate", ",".join(ids)):
            answer: dp.AllocateResponse = await self._ask("Allocate", request, dp.AllocateResponse)
            return answer

    async def pre_start(self, ids: Collection[str]) -> None:
        limit_s = self._timings.prestart_s
        with self._calls.record(self.resource, "PreStartContainer", ",".join(ids)):
            request = dp.PreStartContainerRequest(devices_ids=ids)
            work = self._ask("PreStartContainer", request, dp.PreStartContainerResponse, limit_s)
            try:
                await within(self._clock, limit_s, work)
            except TimeoutError:
                raise CallFailed(grpc.StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded") from None

    def end_stream(self) -> None:
        """Cancel ListAndWatch from this side."""
        if self._stream is not None:
            self._stream.cancel()

    async def close(self) -> None:
        self.closed = True
        await self._channel.close(None)

    async def _ask(self, method: str, request: Any, answer: Any, limit_s: float | None = None) -> Any:
        call = self._channel.unary_unary(
            _SERVICE + method, request_serializer=type(request).SerializeToString, response_deserializer=bytes
        )
        if self.closed:
            raise _closing()
        return parse(answer, await self._translate(call(request, timeout=limit_s)))

    async def _translate(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except grpc.aio.AioRpcError as error:
            raise CallFailed(error.code(), go_text(error.details() or "", self.path)) from None
        except grpc.aio.UsageError:
            raise _closing() from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The channel was closed under the call, which gRPC also reports as a cancellation.
            raise _closing() from None

    def __str__(self) -> str:
        return f"&{{{self.resource} {self.path}}}"


def _closing() -> CallFailed:
    return CallFailed(grpc.StatusCode.CANCELLED, "grpc: the client connection is closing")
