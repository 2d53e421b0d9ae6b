"""Lines on the daemon's own socket: whatever comes, a running daemon answers one JSON line or hangs up, and runs on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from tests.fuzz.mutate import damage_data, damage_text
from tests.fuzz.targets import promise
from tests.fuzz.targets.sim import ORDERS

from fairlead.app.daemon import Daemon
from fairlead.config.load import parse
from fairlead.observe.control import Control

CONFIG = """
backends: [{{kind: sim, fleet: {{devices: [{{count: 3, vendor: nvidia}}]}}}}]
rules: [{{resource: nvidia.com/gpu, replicas: 2}}]
kubelet: {{directory: {root}/dp, podResources: {root}/none.sock}}
status: {{socket: {root}/fl.sock}}
"""
ASKS: tuple[dict[str, Any], ...] = (
    {"ask": "status"},
    {"ask": "explain", "resource": "nvidia.com/gpu", "count": 2},
    {"ask": "explain", "resource": "gpu"},
    {"ask": "journal", "count": 5, "after": 3},
    {"ask": "clear", "device": "0", "code": "x"},
    {"ask": "clear", "device": 1},
    *({"ask": "steer", **order} for order in ORDERS),
)


class _Writer:
    """What Control writes to; remembers it."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = False
        self.transport = self

    def get_extra_info(self, _name: str) -> None:
        return None

    def set_write_buffer_limits(self, _high: int) -> None:
        pass

    def abort(self) -> None:
        self.closed = True

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class ControlTarget:
    block = 250

    async def start(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="fl"))
        self._daemon = Daemon(parse(CONFIG.format(root=self._root), "fuzz"))
        self._task = asyncio.create_task(self._daemon.run())
        async with asyncio.timeout(20):
            while not self._daemon.supervisor.endpoints:  # noqa: ASYNC110 - the daemon has no event for it
                await asyncio.sleep(0.001)
        self._control: Control = self._daemon.questions.control(
            self._root / "fuzz.sock"
        )  # its handlers are the running daemon's; its socket is not opened

    async def case(self, rng: random.Random) -> None:
        ask = rng.choice(ASKS) if rng.random() > 0.04 else ASKS[0]
        line = json.dumps(damage_data(rng, ask))
        if rng.random() < 0.3:
            line = damage_text(rng, line)
        raw = line.encode("utf-8", "surrogatepass")
        if rng.random() < 0.95:
            raw += b"\n"
        if rng.random() < 0.01:
            await self._on_the_socket(raw)
        else:
            await self._in_memory(raw)
        promise(not self._task.done(), "the daemon ended")

    async def _in_memory(self, raw: bytes) -> None:
        reader, writer = asyncio.StreamReader(limit=64 * 1024), _Writer()
        reader.feed_data(raw)
        reader.feed_eof()
        await self._control._serve(reader, writer)  # type: ignore[arg-type]  # as much of a writer as is used
        promise(writer.closed, "the connection stays open")
        self._judge(raw, bytes(writer.written))

    async def _on_the_socket(self, raw: bytes) -> None:
        reader, writer = await asyncio.open_unix_connection(str(self._root / "fl.sock"))
        writer.write(raw)
        with contextlib.suppress(OSError):
            writer.write_eof()
        self._judge(raw, await asyncio.wait_for(reader.read(), 10))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def _judge(self, raw: bytes, answer: bytes) -> None:
        if not raw:
            promise(not answer, "an answer to nothing")
            return
        promise(
            answer.endswith(b"\n") and answer.count(b"\n") == 1, f"not one line for {raw[:200]!r}: {answer[:200]!r}"
        )
        decoded = msgspec.json.decode(answer)
        promise(
            isinstance(decoded, dict) and ("ok" in decoded) != ("error" in decoded), "neither an answer nor an error"
        )
        promise("error" not in decoded or decoded["error"], f"an error says nothing, for {raw[:200]!r}")

    async def stop(self) -> None:
        self._daemon.stop()
        await asyncio.wait_for(self._task, 20)
        shutil.rmtree(self._root, ignore_errors=True)
