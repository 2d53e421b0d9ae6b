"""The daemon's own tasks: one that ends by itself is a defect, and must not pass in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from fairlead.model.ports import Record


class Tasks:
    """`note`: a problem by its topic, for the status."""

    def __init__(self, record: Record, note: Callable[[str, str], None]) -> None:
        self._record, self._note = record, note
        self._running: set[asyncio.Task[None]] = set()
        self._ending = False
        self.crashed: list[str] = []  # ended with an error: only a restart brings them back

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._on_end)
        return task

    async def end_one(self, task: asyncio.Task[None]) -> None:
        """Cancels it, and waits until it has ended."""
        self._running.discard(task)
        task.remove_done_callback(self._on_end)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def end(self, *beside: Awaitable[None]) -> None:
        """Cancels all of them, and waits for them and for what ends beside them."""
        self._ending = True
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, *beside, return_exceptions=True)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        error: BaseException | None = None
        if not task.cancelled():
            error = task.exception()
        elif not self._ending:
            error = asyncio.CancelledError("not by the daemon")
        if error is not None:
            reason = f"{type(error).__name__}: {error}"
            self.crashed.append(task.get_name())
            self._record("task-crashed", task=task.get_name(), reason=reason)
            self._note(task.get_name(), f"the task {task.get_name()!r} has ended: {reason}. Restart the daemon")

    def on_loop_error(self, _loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """What asyncio can raise nowhere: a fact in the journal, in place of its traceback."""
        error = context.get("exception")
        reason = f"{type(error).__name__}: {error}" if error is not None else ""
        self._record("loop-error", what=str(context.get("message", ""))[:200], reason=reason[:500])
