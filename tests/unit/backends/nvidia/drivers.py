"""Backends on a simulated driver, in this process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.nvml import Driver, Gpu, Link, Node
from tests.nvml.library import compiled_or_skip
from tests.nvml.node import CONTROL
from tests.nvml.values import SWITCH_LINK

from fairlead.backends.nvidia import NvidiaBackend, open_backend
from fairlead.kit.clock import SystemClock


@contextmanager
def installed(driver: Driver, directory: Path) -> Iterator[Node]:
    compiled_or_skip()
    before = os.environ.get(CONTROL)
    with driver.installed(directory) as node:
        os.environ[CONTROL] = str(node.control)
        try:
            yield node
        finally:
            if before is None:
                del os.environ[CONTROL]
            else:
                os.environ[CONTROL] = before


def options(node: Node, **more: Any) -> dict[str, Any]:
    root = str(node.root) + (node.driver.driver_root or "")
    health = {"eventWait": "100ms"} | more.pop("health", {})
    cdi = {"directory": str(node.root / "cdi")}
    return {"hostRoot": str(node.root), "driverRootMount": root, "health": health, "cdi": cdi} | more


@asynccontextmanager
async def opened(node: Node, **more: Any) -> AsyncIterator[NvidiaBackend]:
    backend = open_backend(options(node, **more), SystemClock())
    try:
        yield backend
    finally:
        await backend.close()


def switched(those: tuple[Gpu, ...], links: int) -> tuple[Gpu, ...]:
    """Each with so many links, all of them to switches."""
    ends = tuple(Link(number, f"00000000:{0xA0 + number % 6:02X}:00.0", kind=SWITCH_LINK) for number in range(links))
    return tuple(replace(gpu, links=ends) for gpu in those)
