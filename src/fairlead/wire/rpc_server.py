"""The server side of gRPC: unary and server-streaming calls on one listening socket. Owns the socket's connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fairlead.wire.accept import Listener
from fairlead.wire.frames import ErrorCode
from fairlead.wire.limits import Limits
from fairlead.wire.server_protocol import ServerProtocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from fairlead.wire.method import Method
    from fairlead.wire.server_calls import Handler

# Peers close within a millisecond of reading our goodbye. One that has not read it by now will not.
LINGER_S = 0.1


class Server:
    """Serves methods on one listening socket, unix or TCP. Handlers: see `fairlead.wire.rpc`."""

    def __init__(
        self,
        handlers: Mapping[Method[Any, Any], Handler],
        *,
        limits: Limits | None = None,
        on_error: Callable[[str, BaseException], None] | None = None,
        on_shortage: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self.limits = limits or Limits()
        self.routes: Mapping[bytes, tuple[Method[Any, Any], Handler]] = {
            method.path.encode(): (method, handler) for method, handler in handlers.items()
        }
        self.protocols: dict[ServerProtocol, None] = {}  # the oldest first
        self.tasks: set[asyncio.Task[None]] = set()
        self._on_error = on_error
        self._on_shortage = on_shortage
        self._listener: Listener | None = None
        self.stopping = False
        self._idle = asyncio.Event()
        self._gone = asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self.protocols)

    async def start(self, sock: socket.socket) -> None:
        self._listener = Listener(sock, lambda: ServerProtocol(self), self._on_shortage)

    async def stop(self, grace_s: float = 1.0) -> None:
        """Says GOAWAY, lets calls finish for `grace_s`, ends the rest and closes. The socket's path stays as it is."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.stopping = True
        for protocol in list(self.protocols):
            protocol.http.go_away()
            protocol.flush()
        self.check_idle()
        if grace_s > 0:
            await _wait(self._idle, grace_s)
        for protocol in list(self.protocols):
            protocol.end_calls()
            protocol.close_gracefully()
        if self.protocols:
            await _wait(self._gone, LINGER_S)
        for protocol in list(self.protocols):
            protocol.transport.abort()
        if self.protocols:
            await self._gone.wait()
        if self.tasks:
            await asyncio.gather(*self.tasks, return_exceptions=True)

    def shared_descriptors(self) -> list[int]:
        """Of the protected connections: another process may get them too, to keep them open after our end."""
        return [protocol.descriptor for protocol in self.protocols if protocol.peer.protected and not protocol.lost]

    def abandon(self) -> None:
        """Leaves the protected connections without a word: another process keeps them open.

        Not one with a call that is still to be answered: its caller would wait for ever. It ends as others do.
        """
        for protocol in list(self.protocols):
            if protocol.peer.protected and not protocol.is_answering:
                protocol.transport.abort()

    def check_idle(self) -> None:
        if self.stopping and not any(protocol.calls for protocol in self.protocols):
            self._idle.set()

    def add_connection(self, protocol: ServerProtocol) -> None:
        """Takes a connection on. One too many makes us close another, so that the kubelet always gets through."""
        self.protocols[protocol] = None
        if len(self.protocols) > self.limits.connections:
            others = [other for other in self.protocols if other is not protocol and not other.peer.protected]
            idle = [other for other in others if not other.calls]
            for victim in (idle or others)[:1]:
                victim.abort_with(ErrorCode.ENHANCE_YOUR_CALM, "too many connections")

    def enforce_queue_limit(self) -> None:
        """Keeps what waits for all peers together within its bound."""
        while sum(protocol.waiting_bytes for protocol in self.protocols) > self.limits.server_queue_bytes:
            others = [protocol for protocol in self.protocols if not protocol.peer.protected]
            if not others:
                return
            heaviest = max(others, key=lambda protocol: protocol.waiting_bytes)
            heaviest.abort_with(ErrorCode.ENHANCE_YOUR_CALM, "too much is waiting for peers that do not read")

    def remove_connection(self, protocol: ServerProtocol) -> None:
        self.protocols.pop(protocol, None)
        if self.stopping and not self.protocols:
            self._gone.set()

    def report_error(self, path: str, error: BaseException) -> None:
        if self._on_error is not None:
            self._on_error(path, error)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
