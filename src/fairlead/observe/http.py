"""A responder for probes, scrapers and browsers: HTTP/1.1, GET and HEAD, small requests, no bodies.

Owns the framing and the bounds. What is served is a table of routes, which `app` gives. A library for this would cost
the daemon several megabytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket as sockets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from msgspec import Struct

from fairlead.kit.addresses import listen_tcp
from fairlead.model.errors import HostError
from fairlead.wire.accept import Listener

HEAD_MAX_BYTES = 8 * 1024
MAX_CONNECTIONS = 16
MAX_STREAMS = 8  # of them: a browser holds one for each tab
# For a request to come, and then for its answer to be made and to be read by the client.
DEADLINE_S = 10.0
BACKLOG = 16
TEXT = "text/plain; charset=utf-8"
PHRASES = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Reply(Struct, frozen=True):
    body: bytes
    status: int = 200  # of PHRASES
    type: str = TEXT
    stream: AsyncIterator[bytes] | None = None  # follows the body, until it ends or the client goes


class Request(Struct, frozen=True):
    path: str
    query: str = ""
    authorization: str = ""


Route = Callable[[Request], Awaitable[Reply]]


class _Refusal(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.reply = _explain(status, reason)


def listen(address: str) -> sockets.socket:
    """`127.0.0.1:9402`, `[::1]:9402`, or `:9402` for every address of the host. HostError says what does not fit."""
    try:
        return listen_tcp(address, BACKLOG)
    except ValueError:
        raise HostError(f"http.listen: {address!r} is not an address and a port, such as 127.0.0.1:9402") from None
    except OSError as error:
        raise HostError(f"http.listen: {address}: {error.strerror or error}. Choose another with --http") from error


def is_loopback(address: str) -> bool:
    return address.rpartition(":")[0].startswith(("127.", "localhost", "[::1]"))


class HttpServer:
    """Serves routes on one listening socket until closed.

    `hosts` are the names under which browsers may ask, beside addresses and localhost: a page of another site must not
    reach this one by a name of its own that leads here.
    """

    def __init__(
        self,
        listening: sockets.socket,
        routes: Mapping[str, Route],
        hosts: frozenset[str] = frozenset(),
        on_shortage: Callable[[str], None] = lambda _reason: None,
        on_error: Callable[[str, Exception], None] = lambda _path, _error: None,
    ) -> None:
        self.routes = routes
        self.hosts = hosts | {"localhost"}
        self.on_error = on_error
        self.connections: dict[_Connection, None] = {}  # the oldest first
        self.streams = 0
        self.port: int = listening.getsockname()[1]
        self._listener = Listener(listening, lambda: _Connection(self), on_shortage)

    def close(self) -> None:
        self._listener.close()
        for connection in list(self.connections):
            connection.abort()

    def make_room(self) -> bool:
        """Lets the oldest go that asks for nothing: those who hold connections open must not keep probes out."""
        idle = next((each for each in self.connections if each.idle), None)
        if idle is not None:
            del self.connections[idle]
            idle.abort()
        return idle is not None


class _Connection(asyncio.Protocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._buffer = b""
        self._answering: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._closing = False
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(0)
        if len(self._server.connections) >= MAX_CONNECTIONS and not self._server.make_room():
            self._send(_explain(503, f"{MAX_CONNECTIONS} connections are open"), close=True)
        self._server.connections[self] = None
        self._wait()

    @property
    def idle(self) -> bool:
        return self._answering is None and not self._closing

    def connection_lost(self, _error: Exception | None) -> None:
        self._server.connections.pop(self, None)
        if self._alarm is not None:
            self._alarm.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._closing:  # a refused client, or the reader of a stream: nothing more is asked for
            return
        self._buffer += data
        if self._answering is None:
            self._read()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        """The client has read all of the answer."""
        self._writable.set()

    def _wait(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_later(DEADLINE_S, self.abort)

    def _read(self) -> None:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if len(head) > HEAD_MAX_BYTES:
            self._send(_explain(431, f"over {HEAD_MAX_BYTES} bytes"), close=True)
            return
        if not end:
            return
        self._buffer = rest
        try:
            method, request, close = _parse(head, self._server.hosts)
        except _Refusal as refusal:
            self._send(refusal.reply, close=True)
            return
        # One at a time: a client that sends more than it reads waits, and the kernel holds what it sent.
        self._transport.pause_reading()
        self._wait()
        self._answering = asyncio.create_task(self._answer(request, head=method == "HEAD", close=close), name="http")

    async def _answer(self, request: Request, *, head: bool, close: bool) -> None:
        route = self._server.routes.get(request.path)
        if route is None:
            known = ", ".join(sorted(self._server.routes))
            reply = _explain(404, f"nothing is served here. Try one of: {known}")
        else:
            try:
                reply = await route(request)
            except Exception as error:  # noqa: BLE001 - a request must not be able to print a traceback
                self._server.on_error(request.path, error)
                reply = _explain(500, "the answer could not be made; the log says why")
        if self._transport.is_closing():
            return
        if reply.stream is not None and not head:
            await self._send_stream(reply, reply.stream)
            return
        self._send(reply, head=head, close=close)
        await self._writable.wait()  # or until the alarm: no second answer for a client that reads none
        self._answering = None
        if not close:
            self._wait()
            self._transport.resume_reading()
            if self._buffer:
                asyncio.get_running_loop().call_soon(self._next)

    async def _send_stream(self, reply: Reply, stream: AsyncIterator[bytes]) -> None:
        """Each part when the client has read the one before; a client that reads nothing for long is let go."""
        if self._server.streams >= MAX_STREAMS:
            self._send(_explain(503, f"{MAX_STREAMS} streams are open"), close=True)
            return
        self._server.streams += 1
        self._closing = True
        self._transport.resume_reading()  # the end of the client is seen at once, not with a later write
        try:
            if self._alarm is not None:
                self._alarm.cancel()
            self._transport.write(_head(reply, ["Connection: close"]) + reply.body)
            async for part in stream:
                self._transport.write(part)
                async with asyncio.timeout(DEADLINE_S):
                    await self._writable.wait()
        except TimeoutError:
            self.abort()
        finally:
            self._server.streams -= 1
            self._transport.close()

    def _next(self) -> None:
        if self._answering is None and not self._closing and not self._transport.is_closing():
            self._read()

    def _send(self, reply: Reply, *, head: bool = False, close: bool) -> None:
        fields = [f"Content-Length: {len(reply.body)}", *(["Connection: close"] if close else [])]
        self._wait()
        self._transport.write(_head(reply, fields) + (b"" if head else reply.body))
        if close:
            self._closing = True
            self._transport.close()  # after what was written has been read, or the alarm


def _head(reply: Reply, fields: list[str]) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} {PHRASES[reply.status]}",
        f"Content-Type: {reply.type}",
        *fields,
        "Cache-Control: no-store",
        "Content-Security-Policy: default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        "Referrer-Policy: no-referrer",
        "X-Content-Type-Options: nosniff",
    ]
    if reply.status == 405:
        lines.append("Allow: GET, HEAD")
    return "\r\n".join([*lines, "", ""]).encode()


def _parse(head: bytes, hosts: frozenset[str]) -> tuple[str, Request, bool]:
    """The method, what is asked for, and whether the connection ends with the answer."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in {"HTTP/1.1", "HTTP/1.0"}:
        raise _Refusal(400, "the first line is not that of an HTTP/1.1 request")
    method, target, version = words
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise _Refusal(400, "a line of the head is not a field")
        if name.lower() in fields and name.lower() in {"host", "content-length", "transfer-encoding"}:
            raise _Refusal(400, f"{name} is there twice")
        fields[name.lower()] = value.strip()
    if method not in {"GET", "HEAD"}:
        raise _Refusal(405, "only GET and HEAD are served")
    if fields.get("content-length", "0") != "0" or "transfer-encoding" in fields:
        raise _Refusal(413, "a request has no body here")
    _check_host(fields.get("host", "" if version == "HTTP/1.1" else "localhost"), hosts)
    path, _, query = target.partition("?")
    close = version == "HTTP/1.0" or "close" in fields.get("connection", "").lower()
    return method, Request(path, query, fields.get("authorization", "")), close


def _check_host(field: str, hosts: frozenset[str]) -> None:
    bracketed = field.startswith("[") and "]" in field
    host = field[1 : field.index("]")] if bracketed else field.partition(":")[0]
    if host.lower() in hosts:
        return
    with contextlib.suppress(OSError, ValueError):  # no address, or a NUL in it
        sockets.inet_pton(sockets.AF_INET6 if bracketed else sockets.AF_INET, host)
        return
    reason = f"not served under the name {host[:80]!r}. Use an address, or add the name to http.hosts"
    raise _Refusal(421, reason)


def _explain(status: int, reason: str) -> Reply:
    return Reply(f"{PHRASES[status]}: {reason}\n".encode(), status)
