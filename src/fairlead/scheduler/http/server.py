"""Listens, on several addresses with one set of limits, and ends in order. What is served is a table of routes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from pathlib import Path

from fairlead.cluster.tls import ServerCertificates
from fairlead.kit.addresses import listen_tcp
from fairlead.model.errors import HostError
from fairlead.model.ports import Clock
from fairlead.scheduler.http.connection import Connection
from fairlead.scheduler.http.limits import Counters, Limits
from fairlead.scheduler.http.messages import Routes
from fairlead.scheduler.http.service import Service
from fairlead.wire import unix
from fairlead.wire.accept import Listener, Secure

BACKLOG = 1024  # a burst of bindings opens hundreds of connections at once
UNIX = "unix:"
TLS_BUFFER_BYTES = 2**16
CANCELLED_S = 1.0  # for handlers to end once they are told to


class Server:
    """`on_error` hears a path and what its handler raised; `on_shortage` as that of `Listener`."""

    def __init__(
        self,
        routes: Routes,
        clock: Clock,
        limits: Limits | None = None,
        on_error: Callable[[str, BaseException], None] = lambda _path, _error: None,
        on_shortage: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._service = Service(routes, clock, limits or Limits(), on_error)
        self._on_shortage = on_shortage
        self._listeners: list[Listener] = []
        self._files: list[tuple[Path, int]] = []

    @property
    def counters(self) -> Counters:
        return self._service.counters

    def listen(self, address: str, tls: ServerCertificates | None = None) -> str:
        """On `127.0.0.1:8888`, `[::1]:8888`, `:8888` or `unix:/run/x.sock`, which only its owner may open.

        Returns the address with the port that was chosen, where it was 0. HostError says what does not fit.
        """
        if tls is not None and address.startswith(UNIX):
            raise HostError(f"{address}: TLS is for addresses of the network")
        try:
            sock = self._listen_unix(address) if address.startswith(UNIX) else listen_tcp(address, BACKLOG)
        except unix.SocketPathError as error:
            raise HostError(f"cannot listen on {address}: {error}") from error
        except ValueError:
            raise HostError(f"cannot listen on {address!r}: not an address and a port, such as :8888") from None
        except OSError as error:
            raise HostError(f"cannot listen on {address}: {error.strerror or error}") from error
        secure = None if tls is None else self._secure(tls)
        self._listeners.append(Listener(sock, self._make, self._on_shortage, secure))
        if address.startswith(UNIX):
            return address
        return f"{address.rpartition(':')[0]}:{sock.getsockname()[1]}"

    async def close(self, grace_s: float = 10.0) -> None:
        """Accepts nothing more, lets what was asked for be answered, and ends what is not done after the grace."""
        service = self._service
        service.closing = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for path, inode in self._files:
            with contextlib.suppress(OSError):
                if path.stat().st_ino == inode:  # another process may have taken the name
                    path.unlink()
        self._files.clear()
        for member in [*service.idle, *service.lingering]:
            member.hang_up()
        service.ended.clear()
        service.note_end()
        stop = service.clock.alarm(grace_s, service.ended.set)
        await service.ended.wait()
        stop()
        for member in list(service.connections):
            member.abort()
        handlers = list(service.handlers)
        for task in handlers:
            task.cancel()
        if handlers:
            await asyncio.wait(handlers, timeout=CANCELLED_S)
        await asyncio.sleep(0)  # aborted transports close their sockets in the next turn

    def _make(self) -> Connection:
        return Connection(self._service)

    def _secure(self, tls: ServerCertificates) -> Secure:
        limits = self._service.limits
        # asyncio holds a buffer of this size for each connection with TLS. Its own 256 KiB are 250 MB for all of ours.
        SSLProtocol.max_size = TLS_BUFFER_BYTES
        return Secure(tls.current, limits.handshake_s, limits.connections, self._note_handshake)

    def _note_handshake(self) -> None:
        self._service.counters.handshakes_failed += 1

    def _listen_unix(self, address: str) -> socket.socket:
        path = Path(address.removeprefix(UNIX))
        sock = unix.listen(path, backlog=BACKLOG)
        self._files.append((path, path.stat().st_ino))
        return sock
