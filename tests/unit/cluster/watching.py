"""What tests of watches share: pods, a task that runs meanwhile, and waiting for a snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from fairlead.cluster.pods import PodSnapshot
from fairlead.kit.latest import Latest

PATIENCE_S = 20.0


def pod(name: str, *, node: str = "n1", phase: str = "Pending", **meta: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "x" * 1000, "resources": {"limits": {"example.com/gpu": "1"}}}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z", **meta},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": phase},
    }


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(latest: Latest[Any], condition: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        async for now in latest.follow():
            if condition(now):
                return now
    return None


def names(now: PodSnapshot) -> set[str]:
    return {one.name for one in now.pods.values()}


def has(name: str) -> Callable[[PodSnapshot], bool]:
    return lambda now: name in names(now)
