"""The metadata server of a Google machine, as far as it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def metadata_server(answer: bytes, status: str = "200 OK") -> AsyncIterator[str]:
    """Google's, as far as it is asked; only for those who know its flavor."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            known = head.startswith(b"GET /computeMetadata/v1/instance/name ") and b"Metadata-Flavor: Google" in head
            line = status if known else "403 Forbidden"
            writer.write(f"HTTP/1.1 {line}\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
