"""The client side of gRPC on a unix socket: one channel, one connection, no hidden reconnection.

Owns calls and their deadlines. Its users decide when to reconnect.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from fairlead.wire.events import (
    DataReceived,
    Event,
    GoAwayReceived,
    HeadersReceived,
    SettingsReceived,
    StreamReset,
)
from fairlead.wire.frames import ErrorCode, error_name
from fairlead.wire.grpc import MessageDeframer, is_grpc, length_prefixed, percent_decode, request_block
from fairlead.wire.limits import Limits
from fairlead.wire.method import Method, Peer, RpcError, Status
from fairlead.wire.proto import DecodeError, decode, encode
from fairlead.wire.protocol import Http2Protocol
from fairlead.wire.unix import peer_of

if TYPE_CHECKING:
    from fairlead.wire.headers import HeaderList

Req = TypeVar("Req")
Resp = TypeVar("Resp")

# gRPC's own tables: what an HTTP status or a reset means to a caller.
_BY_HTTP = {
    400: Status.INTERNAL,
    401: Status.UNAUTHENTICATED,
    403: Status.PERMISSION_DENIED,
    404: Status.UNIMPLEMENTED,
    429: Status.UNAVAILABLE,
    502: Status.UNAVAILABLE,
    503: Status.UNAVAILABLE,
    504: Status.UNAVAILABLE,
}
_BY_RESET: dict[int, Status] = {
    ErrorCode.REFUSED_STREAM: Status.UNAVAILABLE,
    ErrorCode.CANCEL: Status.CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: Status.RESOURCE_EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: Status.PERMISSION_DENIED,
}


# A server that counts its streams later than we do refuses one now and then. It has not looked at it: asking again is
# safe (RFC 9113, 8.7), a moment later and a few times.
_REFUSED_PAUSES_S = (0.005, 0.02, 0.1, 0.5)


class _PendingCall(Struct, eq=False):
    stream_id: int
    deframer: MessageDeframer
    ended: asyncio.Future[None]
    messages: list[bytes] = field(default_factory=list)
    error: RpcError | None = None
    refused: bool = False


class ClientProtocol(Http2Protocol):
    def __init__(self, limits: Limits) -> None:
        super().__init__(server=False, limits=limits)
        self.calls: dict[int, _PendingCall] = {}
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self.gone: asyncio.Future[None] = self.loop.create_future()
        self.close_reason = "the channel is closed"
        self.waiters: deque[asyncio.Future[None]] = deque()

    def on_writable(self) -> None:
        """A request is one message, which is queued at once: no call waits for room."""

    def on_lost(self, reason: str) -> None:
        self.close_reason = reason
        if not self.ready.done():
            self.ready.set_exception(RpcError(Status.UNAVAILABLE, reason))
            self.ready.exception()  # mark it as retrieved: `connect` may have given up before it awaited this
        for pending in list(self.calls.values()):
            self.end(pending, RpcError(Status.UNAVAILABLE, reason))
        self._wake_openers()
        if self.lost and not self.gone.done():
            self.gone.set_result(None)

    def on_event(self, event: Event) -> None:
        if type(event) is SettingsReceived:
            if not self.ready.done():
                self.ready.set_result(None)
            self._wake_openers()
        elif type(event) is GoAwayReceived:
            self._on_goaway(event)
        elif type(event) is HeadersReceived:
            self._on_headers(event)
        elif type(event) is DataReceived:
            self._on_data(event)
        elif type(event) is StreamReset:
            pending = self.calls.get(event.stream_id)
            if pending is not None:
                pending.refused = event.code == ErrorCode.REFUSED_STREAM and not event.ours
                self.end(pending, _read_reset(event))

    def _on_goaway(self, event: GoAwayReceived) -> None:
        self.close_reason = "the server is going away"
        if event.code:
            self.close_reason += f" with {error_name(event.code)}"
        if event.debug:
            self.close_reason += f": {event.debug.decode('utf-8', 'replace')}"
        for pending in list(self.calls.values()):
            if pending.stream_id > event.last_stream_id:
                self.end(pending, RpcError(Status.UNAVAILABLE, self.close_reason))
        self._wake_openers()
        self.check_drained()

    def check_drained(self) -> None:
        if self.http.peer_going_away and not self.calls and not self.lost:
            self.transport.close()

    def _on_headers(self, event: HeadersReceived) -> None:
        pending = self.calls.get(event.stream_id)
        if pending is None:
            return
        head = event.head
        if not event.trailers:
            http_status = int(head.get(b":status") or b"0")
            if http_status < 200:
                return
            if http_status != 200 or not is_grpc(head.get(b"content-type")):
                status = _BY_HTTP.get(http_status, Status.UNKNOWN)
                self.end(pending, RpcError(status, f"the peer does not speak gRPC: it answered HTTP {http_status}"))
                return
        if event.end_stream:
            self.end(pending, _read_status(head))

    def _on_data(self, event: DataReceived) -> None:
        pending = self.calls.get(event.stream_id)
        if pending is None:
            return
        try:
            pending.messages.extend(pending.deframer.feed(event.data))
        except RpcError as error:
            status = Status.INTERNAL if error.status is Status.UNIMPLEMENTED else error.status
            self.end(pending, RpcError(status, error.message))
            return
        if event.end_stream:
            self.end(pending, RpcError(Status.INTERNAL, "the server ended the call without a status"))
        elif len(pending.messages) > 1:
            self.end(pending, RpcError(Status.INTERNAL, "the server answered more than one message"))
        else:
            self.http.consume(event.stream_id, event.window_bytes)

    def end(self, pending: _PendingCall, error: RpcError | None) -> None:
        """The outcome is known. What is left of the stream is of no interest."""
        if self.calls.pop(pending.stream_id, None) is None:
            return
        pending.error = error
        self.http.reset(pending.stream_id, ErrorCode.CANCEL)
        if not pending.ended.done():  # its caller may have been cancelled
            pending.ended.set_result(None)
        self._wake_openers()
        self.check_drained()

    async def open(self, block: bytes, body: bytes) -> _PendingCall:
        while True:
            if self.lost or not self.http.can_open:
                raise RpcError(Status.UNAVAILABLE, self.close_reason)
            if len(self.http.streams) < self.http.peer_max_streams:
                break
            waiter = self.loop.create_future()
            self.waiters.append(waiter)
            await waiter
        stream_id = self.http.open(block, end_stream=False)
        deframer = MessageDeframer(self.limits.message_bytes)
        pending = self.calls[stream_id] = _PendingCall(stream_id, deframer, self.loop.create_future())
        self.http.send_data(stream_id, length_prefixed(body), end_stream=True)
        self.flush()
        return pending

    def _wake_openers(self) -> None:
        # All of them: each looks again at the peer's limit, and few ever wait.
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)


def _read_reset(event: StreamReset) -> RpcError:
    if event.ours:
        return RpcError(Status.INTERNAL, f"the server broke HTTP/2: {event.reason}")
    status = _BY_RESET.get(event.code, Status.INTERNAL)
    return RpcError(status, f"the server reset the call with {error_name(event.code)}")


def _read_status(head: HeaderList) -> RpcError | None:
    raw = head.get(b"grpc-status")
    if raw is None:
        return RpcError(Status.UNKNOWN, "the server ended the call without a status")
    text = percent_decode(head.get(b"grpc-message") or b"")
    if raw == b"0":
        return None
    known = raw.isdigit() and len(raw) <= 2 and int(raw) <= Status.UNAUTHENTICATED
    return RpcError(Status(int(raw)) if known else Status.UNKNOWN, text)


class Channel:
    """A connection to one unix socket. It never reconnects: when `closed`, make another."""

    def __init__(self, protocol: ClientProtocol, authority: str) -> None:
        self._link = protocol
        self._authority = authority

    @classmethod
    async def connect(
        cls, path: str, *, timeout_s: float, authority: str = "localhost", limits: Limits | None = None
    ) -> Channel:
        """Connects and waits for the server's settings, so that a channel in hand has a gRPC peer behind it."""
        loop = asyncio.get_running_loop()
        bounds = limits or Limits()
        protocol: ClientProtocol | None = None
        try:
            async with asyncio.timeout(timeout_s):
                _, protocol = await loop.create_unix_connection(lambda: ClientProtocol(bounds), path)
                await protocol.ready
        except TimeoutError:
            _abort(protocol)
            raise RpcError(Status.UNAVAILABLE, f"{path} did not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise RpcError(Status.UNAVAILABLE, f"cannot connect to {path}: {error.strerror or error}") from error
        except RpcError as error:
            _abort(protocol)
            raise RpcError(Status.UNAVAILABLE, f"{path}: {error.message}") from None
        except asyncio.CancelledError:
            _abort(protocol)
            raise
        return cls(protocol, authority)

    @property
    def peer(self) -> Peer:
        """The process that listens."""
        return peer_of(self._link.transport.get_extra_info("socket"))

    @property
    def closed(self) -> bool:
        return self._link.lost or not self._link.http.can_open

    async def unary(self, method: Method[Req, Resp], request: Req, *, timeout_s: float | None = None) -> Resp:
        body = encode(request)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._unary(method, body, timeout_s)
        except TimeoutError:
            raise RpcError(Status.DEADLINE_EXCEEDED, f"{method.path} did not answer within {timeout_s:g} s") from None

    async def _unary(self, method: Method[Req, Resp], body: bytes, timeout_s: float | None) -> Resp:
        block = request_block(method.path, self._authority, timeout_s)
        pending = await self._call_once(block, body)
        for pause_s in _REFUSED_PAUSES_S:
            if not pending.refused:
                break
            await asyncio.sleep(pause_s)
            pending = await self._call_once(block, body)
        if pending.error is not None:
            raise pending.error
        if len(pending.messages) != 1:
            raise RpcError(Status.INTERNAL, f"{method.path} answered {len(pending.messages)} messages instead of one")
        try:
            return decode(method.response, pending.messages[0])
        except DecodeError as error:
            raise RpcError(Status.INTERNAL, f"{method.path}: the answer does not decode: {error}") from error

    async def _call_once(self, block: bytes, body: bytes) -> _PendingCall:
        pending = await self._link.open(block, body)
        try:
            await pending.ended
        finally:
            if pending.stream_id in self._link.calls:  # the caller no longer waits: the server is sent a RST_STREAM
                self._link.end(pending, RpcError(Status.CANCELLED, "the caller went away"))
                self._link.flush()
        return pending

    async def close(self) -> None:
        protocol = self._link
        if not protocol.lost:
            protocol.close_reason = "the channel is closed"
            protocol.http.go_away()
            protocol.flush()
            for pending in list(protocol.calls.values()):
                protocol.end(pending, RpcError(Status.CANCELLED, "the channel was closed"))
            protocol.flush()
            protocol.transport.close()
            await protocol.gone


def _abort(protocol: ClientProtocol | None) -> None:
    if protocol is not None:
        protocol.transport.abort()
