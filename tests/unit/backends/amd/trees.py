"""A backend on the tree of a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.amd.machines import Machine
from tests.amd.tree import write
from tests.clock import FakeClock

from fairlead.backends import registry
from fairlead.backends.amd import AmdBackend
from fairlead.model.device import Device
from fairlead.model.inventory import Findings
from fairlead.model.ports import Clock


def backend(root: Path, clock: Clock | None = None, **options: Any) -> AmdBackend:
    opened = registry.open("amd", {"hostRoot": str(root), **options}, clock or FakeClock())
    assert isinstance(opened, AmdBackend)
    return opened


async def scan(root: Path, machine: Machine | None = None, **options: Any) -> Findings:
    if machine is not None:
        write(root, machine)
    amd = backend(root, **options)
    try:
        return await amd.discover()
    finally:
        await amd.close()


def by_id(found: Findings) -> dict[str, Device]:
    return {device.id: device for device in found.devices}


def weight(found: Findings, one: str, other: str) -> int:
    """As AMD's own allocator counts: less is better."""
    return 100 - found.links.between(one, other)
