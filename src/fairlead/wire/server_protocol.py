"""The server side of one connection: requests come in, handlers run, responses and statuses go out.

Owns calls, their deadlines and their tasks. Knows neither what the methods do nor how connections are accepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from fairlead.wire.events import DataReceived, Event, HeadersReceived, SettingsReceived, StreamDrained, StreamReset
from fairlead.wire.frames import ErrorCode
from fairlead.wire.grpc import (
    OK_TRAILERS,
    PREFIX,
    PREFIX_BYTES,
    RESPONSE_HEADERS,
    MessageDeframer,
    error_trailers,
    error_trailers_only,
    length_prefixed,
)
from fairlead.wire.headers import encode_fields
from fairlead.wire.method import Call, RpcError, Status
from fairlead.wire.proto import DecodeError, decode, encode
from fairlead.wire.protocol import Http2Protocol
from fairlead.wire.server_calls import ActiveCall, RequestHeaders, sole_message
from fairlead.wire.unix import peer_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from fairlead.wire.rpc_server import Server

_NOT_GRPC = b"This socket speaks gRPC only.\n"


class ServerProtocol(Http2Protocol):
    def __init__(self, server: Server) -> None:
        super().__init__(server=True, limits=server.limits)
        self._server = server
        self.calls: dict[int, ActiveCall] = {}
        self.request_bytes = 0
        self._preface_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_mark = -1  # the calls that had been finished when it was last seen idle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer = peer_of(transport.get_extra_info("socket"))
        self._call = Call(self.peer)
        self._server.add_connection(self)
        if self._server.stopping:  # it was in the queue of connections when the listener closed
            self.transport.abort()
        self._preface_timer = self.loop.call_later(
            self.limits.preface_s, self.abort_with, ErrorCode.SETTINGS_TIMEOUT, "no preface came"
        )

    @property
    def descriptor(self) -> int:
        return int(self.transport.get_extra_info("socket").fileno())

    @property
    def is_answering(self) -> bool:
        """Whether a call is under way that gets one answer."""
        return any(
            active.headers.method is None or not active.headers.method.streaming for active in self.calls.values()
        )

    def pause_writing(self) -> None:
        super().pause_writing()
        # What is not read cannot make us write: this bounds the answers to pings and to calls alike.
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.paused:
            self.transport.resume_reading()

    def on_backlog(self) -> None:
        self._server.enforce_queue_limit()

    def on_writable(self) -> None:
        for active in self.calls.values():
            self._wake(active)

    def on_lost(self, reason: str) -> None:
        del reason
        for timer in (self._preface_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        for active in list(self.calls.values()):
            self._cancel(active)
        if self.lost:
            self._server.remove_connection(self)

    def on_event(self, event: Event) -> None:
        if type(event) is HeadersReceived:
            if event.trailers:
                self._on_data(event.stream_id, b"", 0, end_stream=True)
            else:
                self._on_request(event)
        elif type(event) is DataReceived:
            self._on_data(event.stream_id, event.data, event.window_bytes, end_stream=event.end_stream)
        elif type(event) is StreamReset:
            active = self.calls.get(event.stream_id)
            if active is not None:
                self._cancel(active)
        elif type(event) is StreamDrained:
            active = self.calls.get(event.stream_id)
            if active is not None:
                self._wake(active)
        elif type(event) is SettingsReceived and self._preface_timer is not None:
            self._preface_timer.cancel()
            self._preface_timer = None
            self._start_idle_timer()

    # Without a call.

    def _start_idle_timer(self) -> None:
        if self._idle_timer is None and not self.lost:
            self._idle_mark = self.http.sending.finished
            self._idle_timer = self.loop.call_later(self.limits.idle_s, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._idle_timer = None
        if self.calls:
            return  # when the last of them ends, it begins again
        if self.http.sending.finished != self._idle_mark:
            self._start_idle_timer()
            return
        self.http.go_away()
        self.flush()
        self.close_gracefully()

    # A request arrives.

    def _on_request(self, event: HeadersReceived) -> None:
        head = event.head
        headers = head.memo
        if type(headers) is not RequestHeaders:
            headers = head.memo = RequestHeaders(head, self._server.routes)
        active = self.calls[event.stream_id] = ActiveCall(event.stream_id, headers)
        if headers.error is not None:
            self._fail(active, headers.error.status, headers.error.message)
            return
        if headers.timeout_s is not None:
            active.timer = self.loop.call_later(headers.timeout_s, self._expire, active)
        if event.end_stream:
            self._on_data(event.stream_id, b"", 0, end_stream=True)

    def _expire(self, active: ActiveCall) -> None:
        self._fail(active, Status.DEADLINE_EXCEEDED, "the deadline has passed")
        self.flush()

    def _on_data(self, stream_id: int, data: bytes, window_bytes: int, *, end_stream: bool) -> None:
        active = self.calls.get(stream_id)
        if active is None:
            return
        if active.headers.http_status:
            # Not for us: read to the end, then say so in plain HTTP.
            self.http.consume(stream_id, window_bytes)
            if end_stream:
                self._answer_http(active)
            return
        size = len(data) - PREFIX_BYTES
        if (
            end_stream
            and active.deframer is None
            and size >= 0
            and PREFIX.unpack_from(data) == (0, size)
            and size <= self.limits.message_bytes
        ):
            # The common case: the whole request in one frame.
            self._dispatch(active, data[PREFIX_BYTES:])
            return
        try:
            self._collect(active, data)
            if end_stream:
                self._dispatch(active, sole_message(active))
            else:
                self.http.consume(stream_id, window_bytes)
        except RpcError as error:
            self._fail(active, error.status, error.message)

    def _collect(self, active: ActiveCall, data: bytes) -> None:
        if active.deframer is None:
            active.deframer = MessageDeframer(self.limits.message_bytes)
        found = active.deframer.feed(data)
        if len(found) + (active.message is not None) > 1:
            raise RpcError(Status.INTERNAL, "a request is exactly one message")
        if found:
            active.message = found[0]
        held_bytes = len(active.deframer) + len(active.message or b"")
        self.request_bytes += held_bytes - active.held_bytes
        active.held_bytes = held_bytes
        if self.request_bytes > self.limits.request_bytes:
            raise RpcError(Status.RESOURCE_EXHAUSTED, "too many bytes of unfinished requests on this connection")

    def _dispatch(self, active: ActiveCall, body: bytes) -> None:
        method, handler = active.headers.method, active.headers.handler
        assert method is not None
        assert handler is not None
        try:
            request = decode(method.request, body)
        except DecodeError as error:
            self._fail(active, Status.INTERNAL, f"the request does not decode: {error}")
            return
        call = self._call
        call.body = body
        try:
            result = handler(request, call)
            if method.streaming:
                self._spawn(active, self._answer_stream, result)
                return
            if type(result) is bytes:
                payload = result
            elif type(result) is not method.response and isinstance(result, Awaitable):
                self._spawn(active, self._answer_unary, result)
                return
            else:
                payload = encode(result)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything; the caller gets a status, never a traceback
            self._fail_with(active, error)
            return
        self._finish(active)
        self.http.answer(active.stream_id, RESPONSE_HEADERS, length_prefixed(payload), OK_TRAILERS)

    # Handlers that take time.

    def _spawn(
        self, active: ActiveCall, answer: Callable[[ActiveCall, Any], Coroutine[Any, Any, None]], result: Any
    ) -> None:
        active.task = self.loop.create_task(self._run(active, answer, result), name=f"rpc {active.headers.path}")
        self._server.tasks.add(active.task)

        def on_end(task: asyncio.Task[None]) -> None:
            self._server.tasks.discard(task)
            active.task = None  # else its traceback keeps the call, and what it sent, until a collection

        active.task.add_done_callback(on_end)
        if isinstance(result, CoroutineType):
            # A task cancelled before its first step never awaits its coroutine, which Python would complain about.
            active.task.add_done_callback(lambda _: result.close())

    async def _run(
        self, active: ActiveCall, answer: Callable[[ActiveCall, Any], Coroutine[Any, Any, None]], result: Any
    ) -> None:
        try:
            await answer(active, result)
        except asyncio.CancelledError:
            self._fail(active, Status.CANCELLED, "the handler was cancelled")
            raise
        except Exception as error:  # noqa: BLE001 - as above
            self._fail_with(active, error)
        finally:
            self.flush()

    async def _answer_unary(self, active: ActiveCall, result: Awaitable[Any]) -> None:
        answer = await result
        payload = answer if type(answer) is bytes else encode(answer)
        if self._finish(active):
            self.http.answer(active.stream_id, RESPONSE_HEADERS, length_prefixed(payload), OK_TRAILERS)

    async def _answer_stream(self, active: ActiveCall, items: AsyncGenerator[Any, None]) -> None:
        stream_id = active.stream_id
        try:
            async for item in items:
                payload = item if type(item) is bytes else encode(item)
                if not active.headers_sent:
                    active.headers_sent = True
                    self.http.send_headers(stream_id, RESPONSE_HEADERS)
                # Not joined: the list is the same for every stream that waits for its turn.
                self.http.send_data(stream_id, PREFIX.pack(0, len(payload)), payload)
                self.flush()
                await self._wait_until_writable(active)
        finally:
            await items.aclose()
        if self._finish(active):
            self.http.send_headers(
                stream_id, OK_TRAILERS if active.headers_sent else RESPONSE_HEADERS + OK_TRAILERS, end_stream=True
            )

    async def _wait_until_writable(self, active: ActiveCall) -> None:
        """Back-pressure: the next message is asked for when this one has left."""
        while self.paused or self.http.queued_bytes(active.stream_id):
            active.writable = self.loop.create_future()
            await active.writable

    def _wake(self, active: ActiveCall) -> None:
        if active.writable is not None and not active.writable.done():
            active.writable.set_result(None)

    # A call ends.

    def _finish(self, active: ActiveCall) -> bool:
        """Forgets the call. False when it was finished already: nothing may be sent for it then."""
        if self.calls.pop(active.stream_id, None) is None:
            return False
        if active.timer is not None:
            active.timer.cancel()
        self.request_bytes -= active.held_bytes
        if not self.calls:
            self._start_idle_timer()
            self._server.check_idle()
        return True

    def _cancel(self, active: ActiveCall) -> None:
        """The peer no longer wants the answer."""
        if self._finish(active) and active.task is not None:
            active.task.cancel()

    def _fail_with(self, active: ActiveCall, error: Exception) -> None:
        if isinstance(error, RpcError):
            self._fail(active, error.status, error.message)
            return
        self._server.report_error(active.headers.path, error)
        self._fail(active, Status.UNKNOWN, str(error))

    def _fail(self, active: ActiveCall, status: Status, text: str) -> None:
        if not self._finish(active):
            return
        block = error_trailers(status, text) if active.headers_sent else error_trailers_only(status, text)
        self.http.send_headers(active.stream_id, block, end_stream=True)
        if active.task is not None and active.task is not asyncio.current_task():
            active.task.cancel()

    def _answer_http(self, active: ActiveCall) -> None:
        self._finish(active)
        headers = active.headers
        block = encode_fields(
            [
                (b":status", headers.http_status),
                (b"content-type", b"text/plain"),
                (b"content-length", b"%d" % len(_NOT_GRPC)),
            ]
        )
        self.http.send_headers(active.stream_id, block, end_stream=not headers.with_body)
        if headers.with_body:
            self.http.send_data(active.stream_id, _NOT_GRPC, end_stream=True)

    def end_calls(self) -> None:
        for active in list(self.calls.values()):
            self._fail(active, Status.UNAVAILABLE, "the server is stopping")
        self.flush()
