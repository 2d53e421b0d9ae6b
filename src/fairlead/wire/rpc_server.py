"""The serving end of gRPC: unary and server-streaming calls on one listening socket. Owns the socket's connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fairlead.wire.accept import Listener
from fairlead.wire.frames import ErrorCode
from fairlead.wire.limits import Limits
from fairlead.wire.serving import ServerLink

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from fairlead.wire.calls import Handler
    from fairlead.wire.method import Method

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
        self.links: dict[ServerLink, None] = {}  # the oldest first
        self.tasks: set[asyncio.Task[None]] = set()
        self._on_error = on_error
        self._on_shortage = on_shortage
        self._listener: Listener | None = None
        self.stopping = False
        self._idle = asyncio.Event()
        self._gone = asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self.links)

    async def start(self, sock: socket.socket) -> None:
        self._listener = Listener(sock, lambda: ServerLink(self), self._on_shortage)

    async def stop(self, grace_s: float = 1.0) -> None:
        """Says GOAWAY, lets calls finish for `grace_s`, ends the rest and closes. The socket's path stays as it is."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.stopping = True
        for link in list(self.links):
            link.http.go_away()
            link.flush()
        self.check_idle()
        if grace_s > 0:
            await _wait(self._idle, grace_s)
        for link in list(self.links):
            link.end_calls()
            link.leave()
        if self.links:
            await _wait(self._gone, LINGER_S)
        for link in list(self.links):
            link.transport.abort()
        if self.links:
            await self._gone.wait()
        if self.tasks:
            await asyncio.gather(*self.tasks, return_exceptions=True)

    def check_idle(self) -> None:
        if self.stopping and not any(link.calls for link in self.links):
            self._idle.set()

    def admit(self, link: ServerLink) -> None:
        """Takes a connection on. One too many makes us close another, so that the kubelet always gets through."""
        self.links[link] = None
        if len(self.links) > self.limits.connections:
            others = [other for other in self.links if other is not link and not other.peer.wanted]
            idle = [other for other in others if not other.calls]
            for victim in (idle or others)[:1]:
                victim.hang_up(ErrorCode.ENHANCE_YOUR_CALM, "too many connections")

    def weigh(self) -> None:
        """Keeps what waits for all peers together within its bound."""
        while sum(link.waiting_bytes for link in self.links) > self.limits.server_queue_bytes:
            others = [link for link in self.links if not link.peer.wanted]
            if not others:
                return
            heaviest = max(others, key=lambda link: link.waiting_bytes)
            heaviest.hang_up(ErrorCode.ENHANCE_YOUR_CALM, "too much is waiting for peers that do not read")

    def forget(self, link: ServerLink) -> None:
        self.links.pop(link, None)
        if self.stopping and not self.links:
            self._gone.set()

    def report(self, path: str, error: BaseException) -> None:
        if self._on_error is not None:
            self._on_error(path, error)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
