"""Stopping the stand-in while it is stopping already."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc.aio

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.servers import Socket


async def test_a_stop_that_is_cancelled_does_not_spoil_the_next(kubelet_root: Path):
    called = asyncio.Event()

    async def answer(_request: Any) -> None:
        called.set()
        await asyncio.Event().wait()

    socket = Socket(kubelet_root / "a.sock", kubelet_root / ".a", {"s": {"M": (answer, dp.Empty, dp.Empty)}})
    await socket.start()
    async with grpc.aio.insecure_channel(f"unix:{kubelet_root}/a.sock") as channel:
        call = channel.unary_unary("/s/M", dp.Empty.SerializeToString, dp.Empty.FromString)(dp.Empty())
        await called.wait()
        for _ in range(3):  # at whatever step it is by then
            stopping = asyncio.create_task(socket.stop())
            await asyncio.sleep(0)
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
        await socket.stop()
        call.cancel()
