"""Accepts connections on a listening socket, and goes on when the process is short of descriptors or memory.

asyncio's own way reports each failed accept with a traceback, up to a hundred times in a row. Knows no protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
RETRY_S = 0.25  # a connection that cannot be accepted waits in the kernel's queue for so long
BATCH = 16  # accepted in one turn of the loop: others wait, too


class Listener:
    """Makes a protocol for each connection. `on_shortage` hears once when none can be accepted, and when it is over."""

    def __init__(
        self,
        sock: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        on_shortage: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._sock = sock
        self._make = make
        self._on_shortage = on_shortage
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        self._short = False
        self._adopting: set[asyncio.Task[None]] = set()
        sock.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accepts nothing more. Connections that were accepted go on."""
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
                self._rest(error)
                return
            if self._short:
                self._short = False
                self._on_shortage("")
            task = self._loop.create_task(self._adopt(connection), name="accept")
            self._adopting.add(task)
            task.add_done_callback(self._adopting.discard)

    async def _adopt(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        # It may be gone already: there is nobody to tell.
        with contextlib.suppress(OSError):
            await self._loop.connect_accepted_socket(self._make, connection)
            return
        connection.close()

    def _rest(self, error: OSError) -> None:
        """The socket stays readable, so it is left alone for a moment."""
        self._loop.remove_reader(self._sock)
        self._retry = self._loop.call_later(RETRY_S, self._listen)
        if not self._short:
            self._short = True
            self._on_shortage(error.strerror or str(error))
