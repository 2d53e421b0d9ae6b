"""A host that is a temporary directory, and the backend on it."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.clock import FakeClock
from tests.unit.backends.sink import Notes

from fairlead.backends.paths import PathsBackend
from fairlead.backends.paths.presets import options_of
from fairlead.backends.paths.scan import Scanner
from fairlead.kit.hostroot import Failed, HostRoot, pass_over
from fairlead.model.device import Device
from fairlead.model.health import Cause
from fairlead.model.ports import Clock


class Host(HostRoot):
    """A directory whose files with a text such as "char 4:64" pass for device nodes: making true ones needs root."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.root = root

    def stat(self, real: str, failed: Failed = pass_over) -> os.stat_result | None:
        state = super().stat(real, failed)
        if state is None or not stat.S_ISREG(state.st_mode):
            return state
        kind, _, number = Path(self.outside(real)).read_text(errors="replace").partition(" ")
        if kind not in {"char", "block"}:
            return state
        major, minor = number.split(":")
        mode = stat.S_IFCHR if kind == "char" else stat.S_IFBLK
        return os.stat_result((mode, *tuple(state)[1:]), {"st_rdev": os.makedev(int(major), int(minor))})

    def put(self, path: str, text: str = "char 1:3") -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def link(self, path: str, target: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    def drop(self, path: str) -> None:
        (self.root / path.lstrip("/")).unlink()


def backend(host: Host, *entries: dict[str, Any], clock: Clock | None = None) -> PathsBackend:
    options = options_of({"devices": list(entries)})
    return PathsBackend(Scanner(options.devices, host), clock or FakeClock(), poll_s=options.poll)


async def scan(paths: PathsBackend) -> dict[str, Device]:
    try:
        return {device.id: device for device in (await paths.discover()).devices}
    finally:
        await paths.close()


async def see(paths: PathsBackend) -> tuple[list[str], tuple[str, ...]]:
    """The ids that are found, and what people are told."""
    try:
        found = await paths.discover()
    finally:
        await paths.close()
    return [device.id for device in found.devices], found.problems


async def probe(paths: PathsBackend, device: Device) -> Cause | None:
    return (await paths.probe_all([device]))[device.id]


@asynccontextmanager
async def watching(paths: PathsBackend) -> AsyncIterator[Notes]:
    """What the backend reports while it watches, after a first scan."""
    notes = Notes()
    await paths.discover()
    task = asyncio.create_task(paths.watch(notes))
    try:
        yield notes
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await paths.close()
