"""What a backend does for containers, with its answers checked. What it has is looked up once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fairlead.engine.validate import check_edits
from fairlead.kit.calls import REASON_MAX, Calls, explain, plain
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import AskRefused, BackendError, EditsFailed
from fairlead.model.ports import Backend, EditsGrants, Prepares, Waits


def edits_of(name: str, backend: Backend) -> Callable[[Grant], Edits]:
    """What a container gets: of a backend that does not say so, the device nodes."""
    if not isinstance(backend, EditsGrants):
        return _nodes_of
    ask = plain("edits", backend.edits)

    def edits(grant: Grant) -> Edits:
        try:
            return check_edits(ask(grant))
        except AskRefused:
            raise
        except Exception as error:
            raise EditsFailed(name, explain(error)) from error

    return edits


def prepare_of(backend: Backend, calls: Calls) -> Callable[[Grant], Awaitable[None]] | None:
    if not isinstance(backend, Prepares):
        return None
    act = backend.prepare
    return lambda grant: calls.call(f"prepare for {', '.join(grant.slots)}", act, grant)


def wait_for_of(backend: Backend, calls: Calls) -> Callable[[], Awaitable[str]] | None:
    if not isinstance(backend, Waits):
        return None
    ask = backend.wait_for

    async def wait_for() -> str:
        reason: Any = await calls.call("wait_for", ask)
        if not isinstance(reason, str):
            raise BackendError(f"wait_for gave {reason!r:.80}, not a text")
        return reason[:REASON_MAX]

    return wait_for


def _nodes_of(grant: Grant) -> Edits:
    return Edits(nodes=tuple(node for device in grant.devices for node in device.nodes))
