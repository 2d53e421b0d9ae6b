"""The calls of one connection, served: requests in, handlers run, answers and statuses out.

Owns calls, their deadlines and their tasks. Must not know what the methods do, nor how connections come about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol

from fairlead.wire.calls import Plan, Serving, only_message
from fairlead.wire.events import DataReceived, Event, HeadersReceived, SettingsReceived, StreamDrained, StreamReset
from fairlead.wire.frames import ErrorCode
from fairlead.wire.grpc import (
    OK_TRAILERS,
    PREFIX,
    PREFIX_BYTES,
    RESPONSE_HEAD,
    Inbox,
    error_only,
    error_trailers,
    prefix,
)
from fairlead.wire.headers import encode_fields
from fairlead.wire.link import Link
from fairlead.wire.method import Call, Method, Peer, RpcError, Status
from fairlead.wire.proto import DecodeError, decode, encode
from fairlead.wire.unix import peer_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Mapping

    from fairlead.wire.calls import Handler
    from fairlead.wire.limits import Limits

_NOT_GRPC = b"This socket speaks gRPC only.\n"


class Host(Protocol):
    """What a connection needs from its server."""

    limits: Limits
    routes: Mapping[bytes, tuple[Method[Any, Any], Handler]]
    tasks: set[asyncio.Task[None]]
    stopping: bool

    def admit(self, link: ServerLink) -> None: ...
    def weigh(self) -> None: ...
    def forget(self, link: ServerLink) -> None: ...
    def check_idle(self) -> None: ...
    def report(self, path: str, error: BaseException) -> None: ...


class ServerLink(Link):
    def __init__(self, server: Host) -> None:
        super().__init__(server=True, limits=server.limits)
        self._server = server
        self.calls: dict[int, Serving] = {}
        self.request_bytes = 0
        self.peer = Peer()
        self._preface: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._idle_mark = -1  # the calls that had been finished when it was last seen idle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer = peer_of(transport.get_extra_info("socket"))
        self._server.admit(self)
        if self._server.stopping:  # it was in the queue of connections when the listener closed
            self.transport.abort()
        self._preface = self.loop.call_later(
            self.limits.preface_s, self.hang_up, ErrorCode.SETTINGS_TIMEOUT, "no preface came"
        )

    def pause_writing(self) -> None:
        super().pause_writing()
        # What is not read cannot make us write: this bounds the answers to pings and to calls alike.
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.paused:
            self.transport.resume_reading()

    @property
    def patient(self) -> bool:
        # A kubelet works through one list before it reads the next. To hang up would make it forget all devices.
        return self.peer.wanted

    def on_backlog(self) -> None:
        self._server.weigh()

    def on_room(self) -> None:
        for serving in self.calls.values():
            self._wake(serving)

    def on_lost(self, reason: str) -> None:
        del reason
        for timer in (self._preface, self._idle):
            if timer is not None:
                timer.cancel()
        for serving in list(self.calls.values()):
            self._drop(serving)
        if self.lost:
            self._server.forget(self)

    def on_event(self, event: Event) -> None:
        if type(event) is HeadersReceived:
            if event.trailers:
                self._on_data(event.stream_id, b"", 0, end_stream=True)
            else:
                self._on_request(event)
        elif type(event) is DataReceived:
            self._on_data(event.stream_id, event.data, event.window_bytes, end_stream=event.end_stream)
        elif type(event) is StreamReset:
            serving = self.calls.get(event.stream_id)
            if serving is not None:
                self._drop(serving)
        elif type(event) is StreamDrained:
            serving = self.calls.get(event.stream_id)
            if serving is not None:
                self._wake(serving)
        elif type(event) is SettingsReceived and self._preface is not None:
            self._preface.cancel()
            self._preface = None
            self._rest()

    # Without a call.

    def _rest(self) -> None:
        if self._idle is None and not self.lost:
            self._idle_mark = self.http.flow.finished
            self._idle = self.loop.call_later(self.limits.idle_s, self._check_rest)

    def _check_rest(self) -> None:
        self._idle = None
        if self.calls:
            return  # when the last of them ends, it begins again
        if self.http.flow.finished != self._idle_mark:
            self._rest()
            return
        self.http.go_away()
        self.flush()
        self.leave()

    # A request arrives.

    def _on_request(self, event: HeadersReceived) -> None:
        head = event.head
        plan = head.memo
        if type(plan) is not Plan:
            plan = head.memo = Plan(head, self._server.routes)
        timeout_s = plan.timeout_s
        deadline_s = None if timeout_s is None else self.loop.time() + timeout_s
        call = Call(plan.path, head.fields, deadline_s, self.loop.time, self.peer)
        serving = Serving(event.stream_id, plan, call)
        self.calls[event.stream_id] = serving
        if plan.error is not None:
            self._refuse(serving, plan.error.status, plan.error.message)
            return
        if timeout_s is not None:
            serving.timer = self.loop.call_later(timeout_s, self._expire, serving)
        if event.end_stream:
            self._on_data(event.stream_id, b"", 0, end_stream=True)

    def _expire(self, serving: Serving) -> None:
        self._refuse(serving, Status.DEADLINE_EXCEEDED, "the deadline has passed")
        self.flush()

    def _on_data(self, stream_id: int, data: bytes, window_bytes: int, *, end_stream: bool) -> None:
        serving = self.calls.get(stream_id)
        if serving is None:
            return
        if serving.plan.http_status:
            # Not for us: read to the end, then say so in plain HTTP.
            self.http.consume(stream_id, window_bytes)
            if end_stream:
                self._answer_http(serving)
            return
        size = len(data) - PREFIX_BYTES
        if (
            end_stream
            and serving.inbox is None
            and size >= 0
            and PREFIX.unpack_from(data) == (0, size)
            and size <= self.limits.message_bytes
        ):
            # The common case: the whole request in one frame.
            self._dispatch(serving, data[PREFIX_BYTES:])
            return
        try:
            self._collect(serving, data)
            if end_stream:
                self._dispatch(serving, only_message(serving))
            else:
                self.http.consume(stream_id, window_bytes)
        except RpcError as error:
            self._refuse(serving, error.status, error.message)

    def _collect(self, serving: Serving, data: bytes) -> None:
        if serving.inbox is None:
            serving.inbox = Inbox(self.limits.message_bytes)
        found = serving.inbox.feed(data)
        if len(found) + (serving.message is not None) > 1:
            raise RpcError(Status.INTERNAL, "a request is exactly one message")
        if found:
            serving.message = found[0]
        held_bytes = len(serving.inbox) + len(serving.message or b"")
        self.request_bytes += held_bytes - serving.held_bytes
        serving.held_bytes = held_bytes
        if self.request_bytes > self.limits.request_bytes:
            raise RpcError(Status.RESOURCE_EXHAUSTED, "too many bytes of unfinished requests on this connection")

    def _dispatch(self, serving: Serving, body: bytes) -> None:
        method, handler = serving.plan.method, serving.plan.handler
        assert method is not None
        assert handler is not None
        try:
            request = decode(method.request, body)
        except DecodeError as error:
            self._refuse(serving, Status.INTERNAL, f"the request does not decode: {error}")
            return
        if method.streaming:
            self._spawn(serving, self._run_stream(serving, handler, request))
            return
        try:
            result = handler(request, serving.call)
            if type(result) is not method.response and isinstance(result, Awaitable):
                self._spawn(serving, self._run_unary(serving, result))
                self._close_after(serving, result)
                return
            payload = result if type(result) is bytes else encode(result)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything; the caller gets a status, never a traceback
            self._refuse_for(serving, error)
            return
        self._finish(serving)
        self.http.answer(serving.stream_id, RESPONSE_HEAD, prefix(payload), OK_TRAILERS)

    # Handlers that take time.

    def _spawn(self, serving: Serving, work: Coroutine[Any, Any, None]) -> None:
        serving.task = self.loop.create_task(work, name=f"rpc {serving.plan.path}")
        self._server.tasks.add(serving.task)
        serving.task.add_done_callback(self._server.tasks.discard)

    def _close_after(self, serving: Serving, result: Any) -> None:
        """A task cancelled before its first step never awaits its coroutine, which Python would complain about."""
        if serving.task is not None and isinstance(result, CoroutineType):
            serving.task.add_done_callback(lambda _: result.close())

    async def _run_unary(self, serving: Serving, result: Any) -> None:
        try:
            answer = await result
            payload = answer if type(answer) is bytes else encode(answer)
        except asyncio.CancelledError:
            self._refuse(serving, Status.CANCELLED, "the handler was cancelled")
            self.flush()
            raise
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse_for(serving, error)
        else:
            if self._finish(serving):
                self.http.answer(serving.stream_id, RESPONSE_HEAD, prefix(payload), OK_TRAILERS)
        self.flush()

    async def _run_stream(self, serving: Serving, handler: Handler, request: object) -> None:
        stream_id = serving.stream_id
        try:
            items: AsyncGenerator[Any, None] = handler(request, serving.call)
            try:
                async for item in items:
                    payload = item if type(item) is bytes else encode(item)
                    if not serving.begun:
                        serving.begun = True
                        self.http.send_headers(stream_id, RESPONSE_HEAD)
                    # Not joined: the list is the same for every stream that waits for its turn.
                    self.http.send_data(stream_id, PREFIX.pack(0, len(payload)), payload)
                    self.flush()
                    await self._wait_for_room(serving)
            finally:
                await items.aclose()
        except asyncio.CancelledError:
            self._refuse(serving, Status.CANCELLED, "the handler was cancelled")
            self.flush()
            raise
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse_for(serving, error)
        else:
            if self._finish(serving):
                self.http.send_headers(
                    stream_id, OK_TRAILERS if serving.begun else RESPONSE_HEAD + OK_TRAILERS, end_stream=True
                )
        self.flush()

    async def _wait_for_room(self, serving: Serving) -> None:
        """Back-pressure: the next message is asked for when this one has left."""
        while self.paused or self.http.queued_bytes(serving.stream_id):
            serving.room = self.loop.create_future()
            await serving.room

    def _wake(self, serving: Serving) -> None:
        if serving.room is not None and not serving.room.done():
            serving.room.set_result(None)

    # A call ends.

    def _finish(self, serving: Serving) -> bool:
        """Takes the call off the books. False when it was off already: nothing may be sent for it then."""
        if self.calls.pop(serving.stream_id, None) is None:
            return False
        if serving.timer is not None:
            serving.timer.cancel()
        self.request_bytes -= serving.held_bytes
        if not self.calls:
            self._rest()
            self._server.check_idle()
        return True

    def _drop(self, serving: Serving) -> None:
        """The peer no longer wants the answer."""
        if self._finish(serving) and serving.task is not None:
            serving.task.cancel()

    def _refuse_for(self, serving: Serving, error: Exception) -> None:
        if isinstance(error, RpcError):
            self._refuse(serving, error.status, error.message)
            return
        self._server.report(serving.plan.path, error)
        self._refuse(serving, Status.UNKNOWN, str(error))

    def _refuse(self, serving: Serving, status: Status, text: str) -> None:
        if not self._finish(serving):
            return
        block = error_trailers(status, text) if serving.begun else error_only(status, text)
        self.http.send_headers(serving.stream_id, block, end_stream=True)
        if serving.task is not None and serving.task is not asyncio.current_task():
            serving.task.cancel()

    def _answer_http(self, serving: Serving) -> None:
        self._finish(serving)
        plan = serving.plan
        block = encode_fields(
            [
                (b":status", plan.http_status),
                (b"content-type", b"text/plain"),
                (b"content-length", b"%d" % len(_NOT_GRPC)),
            ]
        )
        self.http.send_headers(serving.stream_id, block, end_stream=not plan.with_body)
        if plan.with_body:
            self.http.send_data(serving.stream_id, _NOT_GRPC, end_stream=True)

    def end_calls(self) -> None:
        for serving in list(self.calls.values()):
            self._refuse(serving, Status.UNAVAILABLE, "the server is stopping")
        self.flush()
