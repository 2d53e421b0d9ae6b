"""Two odd ways to serve, for the plugin beside this file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc


class Anything(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic for the checker only
    """Answers every method there is, and every other."""

    def service(self, handler_call_details: Any) -> Any:
        async def answer(_request: bytes, _context: Any) -> bytes:
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


class Doorman:
    """Serves eight callers; the others wait for ever, and those who come after them too."""

    def __init__(self, inner: Path) -> None:
        self.inner = inner
        self.inside = 0

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.inside += 1
        if self.inside > 8:
            await asyncio.Event().wait()
        try:
            back_reader, back_writer = await asyncio.open_unix_connection(str(self.inner))
            one = asyncio.create_task(_pump(reader, back_writer))
            other = asyncio.create_task(_pump(back_reader, writer))
            await asyncio.wait({one, other}, return_when=asyncio.FIRST_COMPLETED)
            one.cancel()
            other.cancel()
            back_writer.close()
        except OSError:
            pass
        finally:
            writer.close()
            self.inside -= 1


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass
