"""Tells a service manager that the daemon is ready, alive and stopping: sd_notify's datagrams. Knows no daemon."""

from __future__ import annotations

import contextlib
import socket


class Notifier:
    """Never blocks and never fails: a manager that does not listen is no reason to stop serving."""

    def __init__(self, address: str) -> None:
        """`address`: a path, or with @ in front a name in the abstract namespace. Empty: no manager listens."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if self._address:
            # Made now and kept: there may be no descriptor left for it when it is needed.
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)

    def tell(self, state: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto(state.encode(), self._address)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
