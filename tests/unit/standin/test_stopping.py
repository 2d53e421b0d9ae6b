"""Stopping the stand-in while it is stopping already."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fairlead.standin.servers import Socket


async def test_a_stop_that_is_cancelled_does_not_spoil_the_next(kubelet_root: Path):
    socket = Socket(kubelet_root / "a.sock", kubelet_root / ".a", {})
    await socket.start()
    first = asyncio.create_task(socket.stop())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await socket.stop()
    await socket.stop()
