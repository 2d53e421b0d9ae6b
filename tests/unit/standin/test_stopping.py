"""Stopping the stand-in while it is stopping already."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.relay import Relay
from fairlead.standin.servers import Socket


async def test_a_stop_that_is_cancelled_does_not_spoil_the_next(kubelet_root: Path):
    called = asyncio.Event()

    async def answer(_request: Any) -> None:
        called.set()
        await asyncio.Event().wait()

    served = Socket(kubelet_root / "a.sock", kubelet_root / ".a", {"s": {"M": (answer, dp.Empty, dp.Empty)}})
    await served.start()
    async with grpc.aio.insecure_channel(f"unix:{kubelet_root}/a.sock") as channel:
        call = channel.unary_unary("/s/M", dp.Empty.SerializeToString, dp.Empty.FromString)(dp.Empty())
        await called.wait()
        for _ in range(3):  # at whatever step it is by then
            stopping = asyncio.create_task(served.stop())
            await asyncio.sleep(0)
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
        await served.stop()
        call.cancel()


async def test_a_connection_that_the_server_does_not_serve_breaks_when_the_kubelet_stops(kubelet_root: Path):
    """A gRPC server that stops may leave one open; its caller would wait for a deadline of its own."""
    inner, path = kubelet_root / ".inner", kubelet_root / "a.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(inner))
        silent.listen()
        relay = Relay(path, inner)
        relay.start()
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"PRI * HTTP/2.0")
        accepted, _ = await asyncio.to_thread(silent.accept)
        await relay.close()
        assert await asyncio.wait_for(reader.read(), 10) == b""
        accepted.close()
        writer.close()
        assert path.is_socket()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_unix_connection(path)
