"""Backends that a test scripts, and a source that runs on one of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.clock import FakeClock

from fairlead.engine.source import Source, Tempo
from fairlead.model.device import Device
from fairlead.model.health import Health
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId
from fairlead.model.ports import Sink


class Box:
    """A backend whose answers a test sets."""

    name = "box"

    def __init__(self, *ids: str) -> None:
        self.devices: Any = [Device(DeviceId(one)) for one in ids]
        self.closed = False
        self.scans = 0

    async def discover(self) -> Findings:
        self.scans += 1
        if isinstance(self.devices, Exception):
            raise self.devices
        if self.devices == "hang":
            await asyncio.Event().wait()
        return Findings(tuple(self.devices))

    async def close(self) -> None:
        self.closed = True


class Probed(Box):
    faults: Any = {}

    async def probe(self, device: Device) -> Any:
        answer = self.faults.get(device.id)
        if answer == "hang":
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Watched(Box):
    sink: Sink | None = None
    ends = False

    async def watch(self, sink: Sink) -> None:
        self.sink = sink
        if self.ends:
            raise OSError("gone deaf")
        await asyncio.Event().wait()


class Rig:
    def __init__(self, backend: Any, deadline_s: float) -> None:
        self.clock = FakeClock()
        self.facts: list[tuple[str, dict[str, Any]]] = []
        self.changes = 0
        self.backend = backend
        tempo = Tempo(scan_deadline_s=deadline_s, probe_deadline_s=deadline_s, probe_interval_s=5, scan_interval_s=60)
        self.source = Source("box", backend, tempo, self.clock, self._record, self._changed)

    def _record(self, kind: str, **keys: Any) -> None:
        self.facts.append((kind, keys))

    def _changed(self) -> None:
        self.changes += 1

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.facts]

    def health(self, device: str) -> Health:
        return self.source.conditions[DeviceId(device)].health


@asynccontextmanager
async def running(backend: Any, deadline_s: float = 30.0) -> AsyncIterator[Rig]:
    """`deadline_s`: in real time. Short for a backend that hangs; no other may meet it, however slow the machine is."""
    rig = Rig(backend, deadline_s)
    task = asyncio.create_task(rig.source.run())
    await rig.source.first_scan.wait()
    try:
        yield rig
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert backend.closed
