"""Accepts connections on a listening socket, and goes on when the process is short of descriptors or memory.

asyncio's own way reports each failed accept with a traceback, up to a hundred times in a row. Knows no protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

RETRY_S = 0.25  # a connection that cannot be accepted waits in the kernel's queue for so long
BATCH = 16  # accepted in one turn of the loop: others wait, too


class Secure(NamedTuple):
    """TLS for what is accepted."""

    context: Callable[[], Any]  # asked for each connection: an ssl.SSLContext, which few load
    handshake_s: float
    most: int  # handshakes at once. When there are more, the oldest ends: true clients take milliseconds
    on_failed: Callable[[], None]


class Listener:
    """Makes a protocol for each connection. `on_shortage` hears once when none can be accepted, and when it is over."""

    def __init__(
        self,
        sock: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        on_shortage: Callable[[str], None] = lambda _reason: None,
        secure: Secure | None = None,
    ) -> None:
        self._secure = secure
        self._sock = sock
        self._make = make
        self._on_shortage = on_shortage
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        self._short = False
        self._handing_over: dict[asyncio.Task[None], socket.socket] = {}
        sock.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accepts nothing more. Connections that were accepted go on; those whose handshake has not ended do not."""
        if self._secure is not None:
            for task in self._handing_over:
                task.cancel()
        if self._retry is not None:
            self._retry.cancel()
        elif self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
        self._retry = None
        self._sock.close()

    def _listen(self) -> None:
        self._retry = None
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(BATCH):
            try:
                connection, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            if self._short:
                self._short = False
                self._on_shortage("")
            task = self._loop.create_task(self._hand_over(connection), name="accept")
            self._handing_over[task] = connection
            task.add_done_callback(self._handed_over)
            if self._secure is not None and len(self._handing_over) > self._secure.most:
                next(iter(self._handing_over)).cancel()

    def _handed_over(self, task: asyncio.Task[None]) -> None:
        connection = self._handing_over.pop(task)
        if task.cancelled():
            connection.close()  # one that had not begun has no other owner

    async def _hand_over(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        # The client may have gone already.
        with contextlib.suppress(OSError):
            if self._secure is None:
                await self._loop.connect_accepted_socket(self._make, connection)
            else:
                await self._shake_hands(connection, self._secure)
            return
        connection.close()

    async def _shake_hands(self, connection: socket.socket, secure: Secure) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make,
                connection,
                ssl=secure.context(),
                ssl_handshake_timeout=secure.handshake_s,
                ssl_shutdown_timeout=secure.handshake_s,
            )
        except (OSError, asyncio.CancelledError):
            secure.on_failed()
            raise

    def _pause(self, error: OSError) -> None:
        """The socket stays readable, so it is left alone for a moment."""
        self._loop.remove_reader(self._sock)
        self._retry = self._loop.call_later(RETRY_S, self._listen)
        if not self._short:
            self._short = True
            self._on_shortage(error.strerror or str(error))
