"""The device-plugin service of one resource: the kubelet's five calls, translated. The engine decides the answers.

The kubelet's main loop waits for GetPreferredAllocation and Allocate without a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from fairlead.engine.allocator import Allocator, Ask
from fairlead.fronts.deviceplugin.caller import Caller
from fairlead.fronts.deviceplugin.encoding import DeviceList, container_response
from fairlead.kit.latest import Latest
from fairlead.model.edits import Edits
from fairlead.model.errors import (
    AskRefused,
    BadAsk,
    ClusterAway,
    Elsewhere,
    FairleadError,
    NotAssigned,
    NotClean,
    Straddles,
    UnfitSlots,
    UnknownSlots,
    some,
)
from fairlead.model.names import SlotId
from fairlead.model.ports import Record
from fairlead.wire import deviceplugin as dp
from fairlead.wire.rpc import Call, Method, RpcError, Status

# The kubelet gives PreStartContainer 30 s; answering a little earlier lets our own message through.
PREPARE_DEADLINE_S = 25.0


class Service:
    """Serves one resource. `lists` is followed by every stream with its own cursor."""

    def __init__(self, lists: Latest[DeviceList], allocator: Allocator, record: Record, caller: Caller) -> None:
        self._lists = lists
        self._allocator = allocator
        self._record = record
        self._caller = caller

    def handlers(self) -> Mapping[Method[Any, Any], Callable[..., Any]]:
        return {
            dp.GET_OPTIONS: self.options,
            dp.LIST_AND_WATCH: self.list_and_watch,
            dp.GET_PREFERRED_ALLOCATION: self.prefer,
            dp.ALLOCATE: self.allocate,
            dp.PRE_START_CONTAINER: self.prepare,
        }

    def options(self, _request: dp.Empty | None = None, call: Call | None = None) -> dp.DevicePluginOptions:
        if call is not None:
            self._caller.asked_options(call.peer)
        # Asked once per registration. Preferences are always available: devices may join a list of one later.
        prepare = self._allocator.prepares(self._lists.value.resource)
        return dp.DevicePluginOptions(pre_start_required=prepare, get_preferred_allocation_available=True)

    async def list_and_watch(self, _request: dp.Empty, call: Call) -> AsyncIterator[bytes]:
        closed = self._caller.opened_stream(call.peer)
        sent: tuple[bytes, int] | None = None
        try:
            async for device_list in self._lists.follow():
                # Each message makes the kubelet write its checkpoint to disk: send changes only.
                if (device_list.frame, device_list.repeats) != sent:
                    sent = device_list.frame, device_list.repeats
                    yield device_list.frame
        finally:
            closed()

    def prefer(
        self, request: dp.PreferredAllocationRequest, _call: Call
    ) -> dp.PreferredAllocationResponse | Awaitable[dp.PreferredAllocationResponse]:
        asks = [Ask(ask.available_ids, ask.must_include_ids, ask.allocation_size) for ask in request.container_requests]
        chosen = self._allocator.prefer(self._lists.value.resource, asks)
        return _preferred(chosen) if isinstance(chosen, list) else self._prefer_later(chosen)

    async def _prefer_later(self, chosen: Awaitable[list[tuple[SlotId, ...]]]) -> dp.PreferredAllocationResponse:
        return _preferred(await chosen)

    def allocate(
        self, request: dp.AllocateRequest, _call: Call
    ) -> dp.AllocateResponse | Awaitable[dp.AllocateResponse]:
        containers = [ask.device_ids for ask in request.container_requests]
        try:
            now = self._lists.value
            edits = self._allocator.allocate(now.resource, now.conditions, containers)
            return _allocated(edits) if isinstance(edits, list) else self._allocate_later(edits)
        except AskRefused as refusal:
            raise _as_rpc(refusal) from refusal

    async def _allocate_later(self, edits: Awaitable[list[Edits]]) -> dp.AllocateResponse:
        try:
            return _allocated(await edits)
        except AskRefused as refusal:
            raise _as_rpc(refusal) from refusal

    async def prepare(self, request: dp.PreStartContainerRequest, _call: Call) -> dp.PreStartContainerResponse:
        resource = self._lists.value.resource
        try:
            async with asyncio.timeout(PREPARE_DEADLINE_S):
                await self._allocator.prepare(resource, request.device_ids)
        except TimeoutError as late:
            message = f"{resource.name}: preparing {some(request.device_ids)} took over {PREPARE_DEADLINE_S:g} s"
            self._record("prepare-failed", resource=resource.name, slots=request.device_ids, reason=message)
            raise RpcError(Status.DEADLINE_EXCEEDED, message) from late
        except FairleadError as failure:
            self._record("prepare-failed", resource=resource.name, slots=request.device_ids, reason=str(failure))
            raise _as_rpc(failure) from failure
        return dp.PreStartContainerResponse()


def _preferred(chosen: list[tuple[SlotId, ...]]) -> dp.PreferredAllocationResponse:
    answers = tuple([dp.ContainerPreferredAllocationResponse(device_ids=slots) for slots in chosen])
    return dp.PreferredAllocationResponse(container_responses=answers)


def _allocated(edits: list[Edits]) -> dp.AllocateResponse:
    return dp.AllocateResponse(container_responses=tuple([container_response(part) for part in edits]))


def _as_rpc(error: FairleadError) -> RpcError:
    """The one place where our errors become gRPC status codes."""
    match error:
        case UnknownSlots() | BadAsk():
            return RpcError(Status.INVALID_ARGUMENT, str(error))
        case UnfitSlots() | NotClean() | Straddles() | NotAssigned() | Elsewhere():
            return RpcError(Status.FAILED_PRECONDITION, str(error))
        case ClusterAway():
            return RpcError(Status.UNAVAILABLE, str(error))
        case _:
            return RpcError(Status.INTERNAL, str(error))
