"""Closes a backend: within a deadline, whatever it raises."""

from __future__ import annotations

import asyncio

from fairlead.kit.calls import Calls, explain
from fairlead.model.ports import Backend, Closes, Record

CLOSE_S = 5.0


async def close_backend(name: str, backend: Backend, record: Record) -> None:
    if not isinstance(backend, Closes):
        return
    try:
        async with asyncio.timeout(CLOSE_S):
            await Calls().call("close", backend.close)
    except TimeoutError:
        record("close-failed", backend=name, reason=f"it has not closed in {CLOSE_S:g} s")
    except Exception as error:  # noqa: BLE001 - a backend may be foreign code
        record("close-failed", backend=name, reason=explain(error))
