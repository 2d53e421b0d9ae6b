"""Owner: one daemon thread that owns a blocking library, so that a hang becomes an error and not a stuck loop.

Knows nothing of devices. A call that does not return keeps the one thread; no second one is started beside it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct, field

from fairlead.kit.clock import SystemClock
from fairlead.model.errors import BackendError
from fairlead.model.ports import Clock

R = TypeVar("R")
DEADLINE_S = 5.0


class _Call(Struct, eq=False):
    what: str
    run: Callable[[], Any]
    deadline_s: float
    answer: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    started_s: float = field(default=-1.0)  # set by the thread
    stop_alarm: Callable[[], object] = lambda: None
    beats: bool = False  # it says now and then that it lives, and `started_s` is when it last did


class Owner:
    """All calls run one after the other on one thread: a library that is not thread-safe is safe here."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self.name = name
        self._clock = clock or SystemClock()
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._running: _Call | None = None  # written by the thread, read by the loop
        self._thread: threading.Thread | None = None
        self._closed = False

    def stuck(self) -> str:
        """What has not answered in its time, and for how long; empty when all is well."""
        call = self._running
        if call is None:
            return ""
        waited_s = self._clock.monotonic() - call.started_s
        return f"{self.name}: {call.what} has not answered for {waited_s:.3g} s" if waited_s >= call.deadline_s else ""

    async def call(self, fn: Callable[..., R], /, *args: Any, deadline_s: float = DEADLINE_S, what: str = "") -> R:
        """Runs `fn(*args)` on the thread. BackendError when it takes too long, or when an earlier call is stuck."""
        if self._closed:
            raise BackendError(f"{self.name}: closed")
        if stuck := self.stuck():
            raise BackendError(stuck)
        loop = asyncio.get_running_loop()
        name = what or getattr(fn, "__name__", type(fn).__name__)
        call = _Call(name, lambda: fn(*args), deadline_s, loop.create_future(), loop)
        self._start()
        self._calls.put(call)
        call.stop_alarm = self._clock.alarm(deadline_s, lambda: self._check(call))
        try:
            answer: R = await call.answer
            return answer
        finally:
            call.stop_alarm()
            # Without effect on an answer that is there; a call that waits for its turn is skipped.
            call.answer.cancel()

    def _check(self, call: _Call) -> None:
        """Its time is over: an error, unless it was heard of meanwhile."""
        left_s = call.started_s + call.deadline_s - self._clock.monotonic() if call.beats else 0.0
        if left_s > 0:
            call.stop_alarm = self._clock.alarm(left_s, lambda: self._check(call))
        elif not call.answer.done():
            late = f"{self.name}: {call.what} had no turn within {call.deadline_s:.3g} s"
            call.answer.set_exception(BackendError(self.stuck() or late))

    def beat(self) -> None:
        """On the thread, by a function that goes on and on: it lives, and its deadline counts from now."""
        call = self._running
        if call is not None:
            call.started_s, call.beats = self._clock.monotonic(), True

    def close(self) -> None:
        """Ends the thread after what it is doing now. Never waits: a stuck call must not hold up an exit."""
        if not self._closed:
            self._closed = True
            self._calls.put(None)

    def _start(self) -> None:
        if self._thread is None:
            # A daemon: the interpreter does not wait for it at exit.
            self._thread = threading.Thread(target=self._work, name=f"fairlead-{self.name}", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if call.answer.done():
                continue
            call.started_s = self._clock.monotonic()
            self._running = call
            result: Any = None
            failure: BaseException | None = None
            try:
                result = call.run()
            except BaseException as error:  # noqa: BLE001 - whatever it is, the caller gets it and the thread lives on
                failure = error
            self._running = None
            # A loop that was closed meanwhile has no caller.
            with suppress(RuntimeError):
                call.loop.call_soon_threadsafe(_deliver, call.answer, result, failure)


def _deliver(answer: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if answer.done():
        return
    if failure is None:
        answer.set_result(result)
    elif isinstance(failure, StopIteration) or not isinstance(failure, Exception):
        # A future does not take the first. SystemExit would end the loop, a CancelledError look like the loop's own.
        answer.set_exception(BackendError(f"{type(failure).__name__}: {failure}"))
    else:
        answer.set_exception(failure)
