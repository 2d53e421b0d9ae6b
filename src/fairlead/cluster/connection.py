"""One connection to the API server: a request out, the head and the body of its response in. Owns the socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

from fairlead.cluster.access import Access, Server
from fairlead.cluster.errors import MalformedResponse, NoAccess, Unreachable
from fairlead.cluster.http1 import ProtocolError, Response, ResponseHead

READ_BYTES = 64 * 1024
# A host that is gone without a word is noticed after 10 s, also on a watch where nothing happens. The kernels do it: it
# costs the API server nothing.
KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 10_000))


class Stream:
    """Bytes as they are. `TlsStream` encrypts them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        """Some bytes, or none at the end."""
        return await self._reader.read(READ_BYTES)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


class StaleConnection(Exception):
    """A connection that was kept turned out to be closed: the request was not looked at. Never leaves this room."""


class Connection:
    def __init__(self, stream: Stream, server: Server) -> None:
        self._stream = stream
        self._server = server
        self._response = Response()
        self._pieces: list[bytes] = []
        self.used = 0  # how many requests it has carried
        self.idle_since_s = 0.0

    async def send(self, request: bytes) -> ResponseHead:
        """Sends and waits for the head of the answer."""
        self._response = Response()
        self._pieces = []
        self.used += 1
        try:
            await self._stream.write(request)
            while self._response.head is None:
                await self._read()
        except (OSError, EOFError) as error:
            if self.used > 1 and not self._response.begun:
                raise StaleConnection from None
            raise self._lost(error) from None
        return self._response.head

    async def body(self) -> AsyncIterator[bytes]:
        """The pieces of the body as they come."""
        while True:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                yield piece
            if self._response.done:
                return
            try:
                await self._read()
            except (OSError, EOFError) as error:
                raise self._lost(error) from None

    @property
    def reusable(self) -> bool:
        return self._response.reusable

    def close(self) -> None:
        self._stream.close()

    async def _read(self) -> None:
        data = await self._stream.read()
        if not data:
            try:
                self._response.end()
            except ProtocolError:
                where = " in the middle of an answer" if self._response.begun else ""
                raise EOFError(f"it hung up{where}") from None
            return
        try:
            self._pieces += self._response.feed(data)
        except ProtocolError as error:
            raise MalformedResponse(str(error)) from None

    def _lost(self, error: BaseException) -> Unreachable:
        return Unreachable(str(self._server), getattr(error, "strerror", None) or str(error) or "it hung up")


async def connect(access: Access) -> Connection:
    """A fresh one. Raises Unreachable with what to look at."""
    server = access.server
    context = access.context(await access.credential())
    try:
        reader, writer = await asyncio.open_connection(server.host, server.port)
    except OSError as error:
        raise Unreachable(str(server), error.strerror or str(error)) from None
    except UnicodeError as error:
        raise NoAccess(f"{access.source or server}: {server.host!r:.100} is no name of a host: {error}") from None
    _keep_alive(writer.get_extra_info("socket"))
    if context is None:
        return Connection(Stream(reader, writer), server)
    from fairlead.cluster.tls import TlsStream, is_certificate_error  # noqa: PLC0415 - ssl costs megabytes

    try:
        stream = TlsStream(reader, writer, context, server.name or server.host)
    except ValueError as error:
        writer.close()
        raise NoAccess(f"{access.source or server}: no certificate can be for {server.name!r:.100}: {error}") from None
    try:
        await stream.handshake()
    except OSError as error:
        stream.close()
        hint = "The certificate authority in use is not the one of this cluster" if is_certificate_error(error) else ""
        reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
        raise Unreachable(str(server), f"TLS: {reason}", hint) from None
    except BaseException:
        stream.close()
        raise
    return Connection(stream, server)


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
