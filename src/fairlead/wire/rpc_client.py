"""The calling end of gRPC on a unix socket: one channel, one connection, no hidden reconnection.

Owns calls and their deadlines. Who reconnects, and when, is decided by those who use it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from fairlead.wire.events import (
    DataReceived,
    Event,
    GoAwayReceived,
    HeadersReceived,
    SettingsReceived,
    StreamReset,
)
from fairlead.wire.frames import ErrorCode, name_code
from fairlead.wire.grpc import Inbox, is_grpc, prefix, request_block, unquote_text
from fairlead.wire.limits import Limits
from fairlead.wire.link import Link
from fairlead.wire.method import Method, Peer, RpcError, Status
from fairlead.wire.proto import DecodeError, decode, encode
from fairlead.wire.unix import peer_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from fairlead.wire.headers import Head

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


class _Calling:
    """One call in progress."""

    __slots__ = ("done", "error", "held_bytes", "inbox", "messages", "refused", "stream_id", "waiter")

    def __init__(self, stream_id: int, inbox: Inbox) -> None:
        self.stream_id = stream_id
        self.inbox = inbox
        self.messages: deque[bytes] = deque()
        self.done = False
        self.error: RpcError | None = None
        self.refused = False
        self.waiter: asyncio.Future[None] | None = None
        # Window kept back because the reader is slow.
        self.held_bytes = 0

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class ClientLink(Link):
    def __init__(self, limits: Limits) -> None:
        super().__init__(server=False, limits=limits)
        self.calls: dict[int, _Calling] = {}
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self.gone: asyncio.Future[None] = self.loop.create_future()
        self.why = "the channel is closed"
        self.waiters: deque[asyncio.Future[None]] = deque()

    def on_room(self) -> None:
        """Requests are one message each: there is nobody to wake."""

    def on_lost(self, reason: str) -> None:
        self.why = reason
        if not self.ready.done():
            self.ready.set_exception(RpcError(Status.UNAVAILABLE, reason))
            self.ready.exception()  # seen: whoever connects may have given up before it held the link
        for calling in list(self.calls.values()):
            self.end(calling, RpcError(Status.UNAVAILABLE, reason))
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
            calling = self.calls.get(event.stream_id)
            if calling is not None:
                calling.refused = event.code == ErrorCode.REFUSED_STREAM and not event.ours
                self.end(calling, _read_reset(event))

    def _on_goaway(self, event: GoAwayReceived) -> None:
        self.why = "the server is going away"
        if event.code:
            self.why += f" with {name_code(event.code)}"
        if event.debug:
            self.why += f": {event.debug.decode('utf-8', 'replace')}"
        for calling in list(self.calls.values()):
            if calling.stream_id > event.last_stream_id:
                self.end(calling, RpcError(Status.UNAVAILABLE, self.why))
        self._wake_openers()
        self.check_drained()

    def check_drained(self) -> None:
        if self.http.peer_going_away and not self.calls and not self.lost:
            self.transport.close()

    def _on_headers(self, event: HeadersReceived) -> None:
        calling = self.calls.get(event.stream_id)
        if calling is None:
            return
        head = event.head
        if not event.trailers:
            http_status = int(head.get(b":status") or b"0")
            if http_status < 200:
                return
            if http_status != 200 or not is_grpc(head.get(b"content-type")):
                status = _BY_HTTP.get(http_status, Status.UNKNOWN)
                self.end(calling, RpcError(status, f"the peer does not speak gRPC: it answered HTTP {http_status}"))
                return
        if event.end_stream:
            self.end(calling, _read_status(head))

    def _on_data(self, event: DataReceived) -> None:
        calling = self.calls.get(event.stream_id)
        if calling is None:
            return
        try:
            calling.messages.extend(calling.inbox.feed(event.data))
        except RpcError as error:
            status = Status.INTERNAL if error.status is Status.UNIMPLEMENTED else error.status
            self.end(calling, RpcError(status, error.message))
            return
        if event.end_stream:
            self.end(calling, RpcError(Status.INTERNAL, "the server ended the call without a status"))
            return
        if len(calling.messages) > self.limits.unread_messages:
            calling.held_bytes += event.window_bytes
        else:
            self.http.consume(event.stream_id, event.window_bytes)
        calling.wake()

    def end(self, calling: _Calling, error: RpcError | None) -> None:
        """The outcome is known. What is left of the stream is of no interest."""
        if calling.done:
            return
        calling.done = True
        calling.error = error
        del self.calls[calling.stream_id]
        self.http.reset(calling.stream_id, ErrorCode.CANCEL)
        calling.wake()
        self._wake_openers()
        self.check_drained()

    async def open(self, block: bytes, body: bytes) -> _Calling:
        while True:
            if self.lost or not self.http.can_open:
                raise RpcError(Status.UNAVAILABLE, self.why)
            if len(self.http.streams) < self.http.peer_max_streams:
                break
            waiter = self.loop.create_future()
            self.waiters.append(waiter)
            await waiter
        stream_id = self.http.open(block, end_stream=False)
        calling = self.calls[stream_id] = _Calling(stream_id, Inbox(self.limits.message_bytes))
        self.http.send_data(stream_id, prefix(body), end_stream=True)
        self.flush()
        return calling

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
    return RpcError(status, f"the server reset the call with {name_code(event.code)}")


def _read_status(head: Head) -> RpcError | None:
    raw = head.get(b"grpc-status")
    if raw is None:
        return RpcError(Status.UNKNOWN, "the server ended the call without a status")
    text = unquote_text(head.get(b"grpc-message") or b"")
    if raw == b"0":
        return None
    known = raw.isdigit() and len(raw) <= 2 and int(raw) <= Status.UNAUTHENTICATED
    return RpcError(Status(int(raw)) if known else Status.UNKNOWN, text)


class Channel:
    """A connection to one unix socket. It does not heal: when `closed`, make another."""

    def __init__(self, link: ClientLink, authority: str) -> None:
        self._link = link
        self._authority = authority

    @classmethod
    async def connect(
        cls, path: str, *, timeout_s: float, authority: str = "localhost", limits: Limits | None = None
    ) -> Channel:
        """Connects and waits for the server's settings, so that a channel in hand has a gRPC peer behind it."""
        loop = asyncio.get_running_loop()
        bounds = limits or Limits()
        link: ClientLink | None = None
        try:
            async with asyncio.timeout(timeout_s):
                _, link = await loop.create_unix_connection(lambda: ClientLink(bounds), path)
                await link.ready
        except TimeoutError:
            _abort(link)
            raise RpcError(Status.UNAVAILABLE, f"{path} did not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise RpcError(Status.UNAVAILABLE, f"cannot connect to {path}: {error.strerror or error}") from error
        except RpcError as error:
            _abort(link)
            raise RpcError(Status.UNAVAILABLE, f"{path}: {error.message}") from None
        except asyncio.CancelledError:
            _abort(link)
            raise
        return cls(link, authority)

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
            raise _deadline(method, timeout_s) from None

    async def _unary(self, method: Method[Req, Resp], body: bytes, timeout_s: float | None) -> Resp:
        block = request_block(method.path, self._authority, timeout_s)
        calling = await self._ask(block, body)
        for pause_s in _REFUSED_PAUSES_S:
            if not calling.refused:
                break
            await asyncio.sleep(pause_s)
            calling = await self._ask(block, body)
        if calling.error is not None:
            raise calling.error
        if len(calling.messages) != 1:
            raise RpcError(Status.INTERNAL, f"{method.path} answered {len(calling.messages)} messages instead of one")
        return _decode(method, calling.messages[0])

    async def _ask(self, block: bytes, body: bytes) -> _Calling:
        calling = await self._link.open(block, body)
        try:
            while not calling.done:
                calling.waiter = self._link.loop.create_future()
                await calling.waiter
        finally:
            self._give_up(calling)
        return calling

    async def stream(
        self, method: Method[Req, Resp], request: Req, *, timeout_s: float | None = None
    ) -> AsyncGenerator[Resp, None]:
        """The answers as they come. Closing the iterator cancels the call."""
        link = self._link
        deadline_s = None if timeout_s is None else link.loop.time() + timeout_s
        calling: _Calling | None = None
        try:
            async with asyncio.timeout_at(deadline_s):
                calling = await link.open(request_block(method.path, self._authority, timeout_s), encode(request))
            while True:
                async with asyncio.timeout_at(deadline_s):
                    while not calling.messages and not calling.done:
                        calling.waiter = link.loop.create_future()
                        await calling.waiter
                if not calling.messages:
                    break
                message = _decode(method, calling.messages.popleft())
                if calling.held_bytes and not calling.messages:
                    link.http.consume(calling.stream_id, calling.held_bytes)
                    calling.held_bytes = 0
                    link.flush()
                yield message
        except TimeoutError:
            raise _deadline(method, timeout_s) from None
        finally:
            if calling is not None:
                self._give_up(calling)
        if calling.error is not None:
            raise calling.error

    def _give_up(self, calling: _Calling) -> None:
        """Nobody waits any more. If the call is still open, the server learns of it."""
        if not calling.done:
            self._link.end(calling, RpcError(Status.CANCELLED, "the caller went away"))
            self._link.flush()

    async def close(self) -> None:
        link = self._link
        if not link.lost:
            link.why = "the channel is closed"
            link.http.go_away()
            link.flush()
            for calling in list(link.calls.values()):
                link.end(calling, RpcError(Status.CANCELLED, "the channel was closed"))
            link.flush()
            link.transport.close()
            await link.gone


def _abort(link: ClientLink | None) -> None:
    if link is not None:
        link.transport.abort()


def _deadline(method: Method[Req, Resp], timeout_s: float | None) -> RpcError:
    return RpcError(Status.DEADLINE_EXCEEDED, f"{method.path} did not answer within {timeout_s:g} s")


def _decode(method: Method[Req, Resp], body: bytes) -> Resp:
    try:
        return decode(method.response, body)
    except DecodeError as error:
        raise RpcError(Status.INTERNAL, f"{method.path}: the answer does not decode: {error}") from error
