"""Connections of the kubelet to a daemon that was here before: kept open, and not used for calls.

A kubelet that sees an old stream of a resource end takes the newest registration of that name for the one that ended,
and drops its devices (Kubernetes issues 121994 and 127803). As long as the old connection stays open it does not look.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence

from fairlead.wire.dormant import UnexpectedFrame, answer_control

MOST = 64  # each upgrade adds one, until the kubelet restarts
READ_BYTES = 4096


class InheritedConnections:
    def __init__(self) -> None:
        self._unread: dict[socket.socket, bytes] = {}  # the oldest connection first; the begin of a frame
        self._watched = False

    def __len__(self) -> int:
        return len(self._unread)

    @property
    def descriptors(self) -> list[int]:
        return [each.fileno() for each in self._unread]

    def adopt(self, descriptors: Sequence[int]) -> None:
        """Takes them over, for as long as the kubelet keeps them."""
        for descriptor in descriptors:
            connection = socket.socket(fileno=descriptor)
            connection.setblocking(False)
            self._unread[connection] = b""
            if self._watched:
                self._watch_one(connection)
        while len(self._unread) > MOST:
            self._end(next(iter(self._unread)))

    def watch(self) -> None:
        """The daemon that had them is gone, and reads no more."""
        self._watched = True
        for connection in self._unread:
            self._watch_one(connection)

    def _watch_one(self, connection: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(connection, self._read, connection)

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(READ_BYTES)
            reply, self._unread[connection] = answer_control(self._unread[connection] + data)
            if reply:
                connection.send(reply)
        except BlockingIOError:
            return
        except (OSError, UnexpectedFrame):
            # A call here would never be answered, and the kubelet waits for Allocate without a deadline.
            data = b""
        if not data:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(connection)
        self._unread.pop(connection, None)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    def close(self, *, given: bool) -> None:
        """`given`: another process has them too, and keeps them open."""
        for connection in list(self._unread):
            if given:
                asyncio.get_running_loop().remove_reader(connection)
                connection.close()
            else:
                self._end(connection)
        self._unread.clear()
