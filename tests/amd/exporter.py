"""AMD's metrics exporter, as a server of grpcio. Its answer is written byte by byte, not with our own messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc


@asynccontextmanager
async def exporter(socket: Path, states: Sequence[tuple[str, ...]] | None) -> AsyncIterator[list[bytes]]:
    """Serves a device and a word for each state, and an id if it has one; None: every call is an error.

    Yields the requests that came.
    """
    requests: list[bytes] = []

    async def answer(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        requests.append(request)
        if states is None:
            await context.abort(grpc.StatusCode.INTERNAL, "no")
        return b"".join(_field(1, _state(n, *state)) for n, state in enumerate(states or ()))

    handler = grpc.unary_unary_rpc_method_handler(answer)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("metricssvc.MetricsService", {"List": handler})]
    )
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield requests
    finally:
        await server.stop(None)


def _state(number: int, device: str, health: str, name: str = "") -> bytes:
    fields = {1: name or str(number), 2: f"uuid-{number}", 3: health, 4: "pod-a", 5: device}
    return b"".join(_field(place, text.encode()) for place, text in fields.items() if text)


def _field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content
