"""Listens at a path, passes each connection on to another socket, and breaks them all at once when it is closed.

As the kernel does for a process that is killed. A gRPC server cannot: a connection that reaches it while it stops may
stay open and unserved, and the caller waits for its own deadline.
"""

import asyncio
import contextlib
import os
import socket
import zlib
from pathlib import Path

_CHUNK_BYTES = 65536


class Relay:
    """Its sockets are its own from the first moment: none is left to a server that may drop it unclosed."""

    def __init__(self, path: Path, inner: Path) -> None:
        self._path = path
        self._inner = inner
        self._listener: socket.socket | None = None
        self._connections: dict[asyncio.Task[None], socket.socket] = {}

    def start(self) -> None:
        """Make the file. It is listened to before it is seen under its name, and stays when the relay is closed.

        The other name stays too: to remove it would change the file's times, and a plugin that looks at the times to
        tell one kubelet.sock from the next would take it for another file.
        """
        unseen = self._inner.with_name(f".{zlib.crc32(os.fsencode(self._path)):x}")
        self._path.unlink(missing_ok=True)
        unseen.unlink(missing_ok=True)
        self._listener = listener = socket.socket(socket.AF_UNIX)
        listener.setblocking(False)
        listener.bind(str(unseen))
        listener.listen(128)
        os.link(unseen, self._path)
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    async def close(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        tasks = tuple(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        try:
            outer, _ = listener.accept()
        except OSError:
            return  # the caller has gone
        outer.setblocking(False)
        task = asyncio.create_task(self._serve(outer), name="relay")
        self._connections[task] = outer
        task.add_done_callback(lambda done: self._connections.pop(done).close())

    async def _serve(self, outer: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as inner, contextlib.suppress(OSError):
            inner.setblocking(False)
            await asyncio.get_running_loop().sock_connect(inner, str(self._inner))
            ways = {asyncio.create_task(_copy(*way)) for way in ((outer, inner), (inner, outer))}
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)


async def _copy(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while chunk := await loop.sock_recv(source, _CHUNK_BYTES):
        await loop.sock_sendall(target, chunk)
