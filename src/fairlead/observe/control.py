"""The daemon's own socket: one JSON line in, one JSON line out. Mode 0600, on the local host only.

Owns the framing, on both ends. What may be asked is a table of handlers, which `app` gives.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket as sockets
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fairlead.kit.owner import Owner
from fairlead.kit.text import to_json
from fairlead.model.errors import Busy, FairleadError, HostError, NotRunning, UsageError
from fairlead.wire.accept import Listener
from fairlead.wire.rpc import Peer
from fairlead.wire.unix import SocketPathError, listen, peer_of

# What it gives is the answer; or a function that makes it, which is then called on a thread: it must know all it needs.
Handler = Callable[[Mapping[str, Any], Peer], Awaitable[Any]]

REQUEST_MAX_BYTES = 64 * 1024
ANSWER_MAX_BYTES = 64 * 1024 * 1024  # 60,000 slots with holders are about 10 MB
READ_DEADLINE_S = 10.0
WORK_DEADLINE_S = 30.0
# One question is worked on at a time; so many more may wait for their turn, and so many bytes for slow readers.
MAX_WAITING = 16
MAX_CONNECTIONS = 64
UNSENT_MAX_BYTES = 64 * 1024 * 1024


class Control:
    """Serves the socket until closed. `on_shortage`: see `Listener`."""

    def __init__(
        self, path: Path, handlers: Mapping[str, Handler], on_shortage: Callable[[str], None] = lambda _reason: None
    ) -> None:
        self.path = path
        self._handlers = handlers
        self._on_shortage = on_shortage
        self.taken = False  # another daemon has the socket
        self._listener: Listener | None = None
        self._inode: int | None = None
        self._thread = Owner("status")
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._unsent_bytes = 0
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        if _answers(self.path):
            self.taken = True
            raise HostError(
                f"status socket {self.path}: another daemon answers on it. Choose another with --status-socket"
            )
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            listening = listen(self.path)
        except SocketPathError as error:
            raise HostError(f"status socket: {error}") from error
        except OSError as error:
            raise HostError(
                f"status socket {self.path}: {error.strerror}. Choose another with --status-socket"
            ) from error
        self._inode = self.path.stat().st_ino
        self._listener = Listener(listening, self._protocol, self._on_shortage)

    async def close(self) -> None:
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:  # a later daemon may have taken the name
                self.path.unlink()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        self._thread.close()

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(REQUEST_MAX_BYTES), self._spawn)

    def _spawn(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not asyncio's own task, which complains in its log when it is cancelled.
        task = asyncio.create_task(self._serve(reader, writer), name="status")
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._open) > MAX_CONNECTIONS:
                busy = Busy(f"over {MAX_CONNECTIONS} connections are open. Ask again later")
                await self._send(writer, _failure(busy))
                return
            try:
                async with asyncio.timeout(READ_DEADLINE_S):
                    line = await reader.readline()
            except ValueError:
                line = b"too long"  # answered as the nonsense it is
            if line:
                await self._send(writer, await self._answer(line, peer_of(writer.get_extra_info("socket"))))
        except (OSError, ValueError, TimeoutError):
            # The caller went away, sent no line or does not read: there is no one to answer.
            writer.transport.abort()
        finally:
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Until all of it is read. TimeoutError for a caller that does not read."""
        self._unsent_bytes += len(data)
        try:
            writer.transport.set_write_buffer_limits(0)
            writer.write(data + b"\n")
            async with asyncio.timeout(READ_DEADLINE_S):
                await writer.drain()
        finally:
            self._unsent_bytes -= len(data)

    async def _answer(self, line: bytes, peer: Peer) -> bytes:
        try:
            request = msgspec.json.decode(line, type=dict[str, Any])
            handler = self._find(request.get("ask"))
            return await self._work(handler, request, peer)
        except FairleadError as error:
            return _failure(error)
        except msgspec.DecodeError as error:
            return _failure(UsageError(f"not a JSON object: {error}"))
        except (TypeError, ValueError) as error:
            return _failure(UsageError(f"a value in the request does not fit: {error}"))
        except Exception as error:  # noqa: BLE001 - a request must not be able to print a traceback
            return to_json({"error": f"a defect in Fairlead: {type(error).__name__}: {error}", "exit_code": 70})

    async def _work(self, handler: Handler, request: Mapping[str, Any], peer: Peer) -> bytes:
        """One after the other: the kubelet's calls are answered in between."""
        if self._waiting >= MAX_WAITING or self._unsent_bytes > UNSENT_MAX_BYTES:
            unread = f"{self._unsent_bytes} bytes of answers are not read"
            raise Busy(f"the daemon is busy: {self._waiting} requests wait, {unread}. Ask again later")
        self._waiting += 1
        try:
            async with self._turn:
                found = await handler(request, peer)
                if callable(found):
                    make = found
                    return await self._thread.call(
                        lambda: to_json({"ok": make()}), deadline_s=WORK_DEADLINE_S, what=str(request["ask"])
                    )
                return to_json({"ok": found})
        finally:
            self._waiting -= 1

    def _find(self, ask: object) -> Handler:
        handler = self._handlers.get(str(ask))
        if handler is None:
            raise UsageError(f"unknown request {ask!r:.80}; known are: {', '.join(self._handlers)}")
        return handler


def _failure(error: FairleadError) -> bytes:
    return to_json({"error": str(error), "exit_code": error.exit_code})


def _answers(path: Path) -> bool:
    with sockets.socket(sockets.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def _receive(connection: sockets.socket, *, last: bool) -> bytes:
    """What came; nothing at the end. A daemon that answered before it read the question ends with a reset."""
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        if last:
            return b""
        raise


def ask(path: Path, request: Mapping[str, Any], *, timeout_s: float = READ_DEADLINE_S) -> Any:
    """The other end, for commands: blocking, because a command has nothing else to do."""
    connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    connection.settimeout(timeout_s)
    with connection:
        try:
            connection.connect(os.fspath(path))
            # Refused before it was read: why, can still be read.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(to_json(request) + b"\n")
            answer = bytearray()
            while chunk := _receive(connection, last=answer.endswith(b"\n")):
                answer += chunk
                if len(answer) > ANSWER_MAX_BYTES:
                    raise NotRunning(f"{path}: the answer is over {ANSWER_MAX_BYTES} bytes")
        except PermissionError as error:
            raise NotRunning(f"{path}: not allowed. The socket belongs to the user who runs the daemon") from error
        except OSError as error:
            raise NotRunning(
                f"no daemon answers on {path} ({error.strerror or error}). Is `fairlead run` running? "
                "If it has another --status-socket, give that here too"
            ) from error
    try:
        decoded = msgspec.json.decode(bytes(answer), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise NotRunning(f"{path}: the answer was cut off: {error}") from error
    if "error" in decoded:
        failure = FairleadError(str(decoded["error"]))
        failure.exit_code = int(decoded.get("exit_code", 1))
        raise failure
    return decoded.get("ok")
