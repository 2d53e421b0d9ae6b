"""The daemon's own socket: one JSON line in, one JSON line out. Mode 0600, on the local host only.

Owns the framing, on both ends. What may be asked is a table of handlers, given by whoever wires the daemon.
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

from fairlead.model.errors import FairleadError, HostError, NotRunning, UsageError
from fairlead.wire.unix import SocketPathError, listen

Handler = Callable[[Mapping[str, Any]], Awaitable[Any]]

REQUEST_MAX_BYTES = 64 * 1024
ANSWER_MAX_BYTES = 64 * 1024 * 1024  # 60,000 slots with holders are about 10 MB
READ_DEADLINE_S = 10.0


class Control:
    """Serves the socket until closed."""

    def __init__(self, path: Path, handlers: Mapping[str, Handler]) -> None:
        self.path = path
        self._handlers = handlers
        self._server: asyncio.Server | None = None
        self._inode: int | None = None

    async def start(self) -> None:
        if _answers(self.path):
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
        self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=REQUEST_MAX_BYTES)

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:  # a later daemon may have taken the name
                self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            try:
                async with asyncio.timeout(READ_DEADLINE_S):
                    line = await reader.readline()
            except ValueError:
                line = b"too long"  # answered as the nonsense it is
            if line:
                writer.write(msgspec.json.encode(await self._answer(line), enc_hook=str) + b"\n")
                async with asyncio.timeout(READ_DEADLINE_S):
                    await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # a caller that went away, sent no line or will not read: nothing to tell, nobody to tell it to
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = msgspec.json.decode(line, type=dict[str, Any])
            handler = self._find(request.get("ask"))
            return {"ok": await handler(request)}
        except FairleadError as error:
            return {"error": str(error), "exit_code": error.exit_code}
        except msgspec.DecodeError as error:
            return {"error": f"not a JSON object: {error}", "exit_code": UsageError.exit_code}
        except (TypeError, ValueError) as error:
            return {"error": f"a value in the request does not fit: {error}", "exit_code": UsageError.exit_code}
        except Exception as error:  # noqa: BLE001 - a request must not be able to print a traceback
            return {"error": f"a defect in Fairlead: {type(error).__name__}: {error}", "exit_code": 70}

    def _find(self, ask: object) -> Handler:
        handler = self._handlers.get(str(ask))
        if handler is None:
            raise UsageError(f"unknown request {ask!r}; known are: {', '.join(self._handlers)}")
        return handler


def _answers(path: Path) -> bool:
    with sockets.socket(sockets.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def ask(path: Path, request: Mapping[str, Any], *, timeout_s: float = READ_DEADLINE_S) -> Any:
    """The other end, for commands: blocking, because a command has nothing else to do."""
    connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    connection.settimeout(timeout_s)
    with connection:
        try:
            connection.connect(os.fspath(path))
            connection.sendall(msgspec.json.encode(request) + b"\n")
            answer = bytearray()
            while chunk := connection.recv(65536):
                answer += chunk
                if len(answer) > ANSWER_MAX_BYTES:
                    raise NotRunning(f"{path}: the answer is over {ANSWER_MAX_BYTES} bytes")
        except PermissionError as error:
            raise NotRunning(f"{path}: not allowed. The socket belongs to the user who runs the daemon") from error
        except OSError as error:
            raise NotRunning(
                f"no daemon answers on {path} ({error.strerror or error}). Is `fairlead run` running?"
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
