"""Signals: TERM, INT and QUIT stop, a second one forces, HUP reloads."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from types import TracebackType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class Signals:
    """Installed while the daemon runs; not in a thread that is not the main one."""

    def __init__(
        self,
        stop: Callable[[], None],
        reload: Callable[[], None],
        on_signal: Callable[[int], None] = lambda _number: None,
    ) -> None:
        """`on_signal` is called at once, in the midst of what the main thread does; the others on the loop."""
        self._stop = stop
        self._on_signal = on_signal
        self._reload = reload
        self._asked = False

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            for number in STOPPING:
                loop.add_signal_handler(number, self._on_stop, number)
                # In place of asyncio's handler, which does nothing: the loop is woken by the signal's descriptor.
                signal.signal(number, lambda number, _frame: self._on_signal(number))
                signal.siginterrupt(number, False)
            loop.add_signal_handler(signal.SIGHUP, self._reload)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # see `start.prepare`
        except (ValueError, RuntimeError):  # not the main thread: the program around it decides when to stop
            pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the handlers in place: a second signal must still force while we stop."""

    def _on_stop(self, number: int) -> None:
        if self._asked:
            sys.stderr.write("fairlead: second signal, leaving at once\n")
            sys.stderr.flush()
            os._exit(128 + number)
        self._asked = True
        self._stop()
