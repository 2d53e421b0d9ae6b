"""Sees a loop that does not turn, says where it hangs, and ends the process in the end: a supervisor starts it again.

Code of a plugin that blocks the loop keeps Allocate and signals waiting, and nothing on the loop can help. A thread
can.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import faulthandler
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from fairlead.observe.journal import Journal

# The loop is asked for a turn at this pace while all is well, and looked after at the other while it owes one.
REST_S = 15.0
ALERT_S = 0.5
BLOCKED_S = 5.0  # a turn that takes longer is worth a line in the log
# A signal asked us to stop: those who wait for our end wait no longer than this for a loop that does not turn.
STOP_S = 5.0
# We were not run ourselves, by more than this: the process was stopped, or its machine. That is no hang.
FROZEN_S = 5.0
NET_S = 10.0  # the timer in C fires no sooner after twice the limit than this
NET_RESTS = 4  # and is set anew once in so many turns: it is a thread of its own each time
PLACES_SHOWN = 4
EXIT_CODE = 75  # EX_TEMPFAIL: start it again


class Verdict(enum.Enum):
    WELL = enum.auto()
    BLOCKED = enum.auto()  # reported once per hang
    OVER = enum.auto()


class Pulse:
    """What is known of the loop's turns. Pure: times are given."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.owed_since_s: float | None = None  # a turn was asked for and has not come
        self.reported = False
        self._seen_s: float | None = None

    def ask(self, now_s: float) -> None:
        if self.owed_since_s is None:
            self.owed_since_s = now_s

    def ask_anew(self, now_s: float) -> None:
        """Another limit holds from now on. What was owed before does not count."""
        self.owed_since_s = now_s

    def turned(self) -> bool:
        """The loop has turned. Whether that ends a hang that was reported."""
        reported, self.reported, self.owed_since_s = self.reported, False, None
        return reported

    def blocked_s(self, now_s: float) -> float:
        owed_s = self.owed_since_s  # the loop may turn at any moment
        return now_s - owed_s if owed_s is not None else 0.0

    def judge(self, now_s: float, *, slept_s: float, limit_s: float | None = None) -> Verdict:
        """`slept_s`: how long the watcher meant to sleep before this look."""
        owed_s = self.owed_since_s
        if self._seen_s is not None and owed_s is not None and now_s - self._seen_s - slept_s > FROZEN_S:
            self.owed_since_s = owed_s + now_s - self._seen_s - slept_s
        self._seen_s = now_s
        waited_s = self.blocked_s(now_s)
        if waited_s >= (self.limit_s if limit_s is None else limit_s):
            return Verdict.OVER
        if waited_s >= min(BLOCKED_S, self.limit_s / 2) and not self.reported:
            self.reported = True
            return Verdict.BLOCKED
        return Verdict.WELL


class Watchdog:
    """Watches the running loop from a thread, between `start` and `stop`.

    `alive` is called on the loop at least every `alive_s`.
    """

    def __init__(
        self,
        limit_s: float,
        journal: Journal,
        *,
        alive: Callable[[], None] = lambda: None,
        alive_s: float = REST_S,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self._pulse = Pulse(limit_s or float("inf"))
        self._journal = journal
        self._alive = alive
        self._end = end
        self._rest_s = min(REST_S, alive_s, (limit_s or REST_S * 4) / 4)
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._over = threading.Event()
        # Wakes the thread. A queue of this kind may be used in a signal's handler; an event may not.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._net_until_s = float("-inf")  # when the timer in C fires
        self._asked = False  # a turn; the loop has it in its queue
        self._signal = 0  # that asked for an end
        self._thread = threading.Thread(target=self._watch, name="fairlead-watchdog", daemon=True)

    def start(self) -> None:
        self._set_net()
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._wake.put(None)
        self._thread.join(ALERT_S)
        faulthandler.cancel_dump_traceback_later()

    def signalled(self, number: int) -> None:
        """In a signal's handler, which runs in the midst of what hangs: the loop has a while to take note of it."""
        if not self._signal:  # a further one gives no more time
            self._pulse.ask_anew(time.monotonic())
        self._signal = number
        self._wake.put(None)

    def _watch(self) -> None:
        late = False  # a turn was owed at the last look
        while not self._over.is_set():
            slept_s = min(ALERT_S, self._rest_s) if late or self._signal else self._rest_s
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=slept_s)
            if self._over.is_set():
                return
            late = self._pulse.owed_since_s is not None
            if not late:
                self._set_net()
            stopping = bool(self._signal)
            verdict = self._pulse.judge(time.monotonic(), slept_s=slept_s, limit_s=STOP_S if stopping else None)
            if verdict is Verdict.OVER:
                with contextlib.suppress(Exception):  # whatever is wrong with the log: a loop that hangs is ended
                    self._journal.record_at_once("watchdog-ended", **self._where(stopping=stopping))
                self._end(128 + self._signal if stopping else EXIT_CODE)
                return
            if verdict is Verdict.BLOCKED:
                with contextlib.suppress(Exception):
                    self._journal.record_at_once("loop-blocked", **self._where(stopping=stopping))
            if not self._asked:
                self._ask()

    def _ask(self) -> None:
        self._pulse.ask(time.monotonic())
        self._asked = True
        try:
            self._loop.call_soon_threadsafe(self._on_turn)
        except RuntimeError:  # the loop is closed
            self._over.set()

    def _on_turn(self) -> None:
        seconds = self._pulse.blocked_s(time.monotonic())
        self._asked = False
        if self._pulse.turned():
            self._journal.record("loop-resumed", seconds=round(seconds, 1))
        self._alive()

    def _where(self, *, stopping: bool) -> Mapping[str, Any]:
        at, via = places(sys._current_frames().get(self._watched))  # noqa: SLF001 - documented, and the only way
        return {
            "seconds": round(self._pulse.blocked_s(time.monotonic()), 1),
            "limit": STOP_S if stopping else self._pulse.limit_s,
            "at": at,
            "via": via,
            "reason": "code on the event loop blocks: move it to a thread",
        }

    def _set_net(self) -> None:
        """For a library that holds the interpreter's lock: no Python runs then, not even this thread."""
        now_s, least_s = time.monotonic(), 2 * self._pulse.limit_s + NET_S
        if least_s == float("inf") or self._net_until_s - now_s >= least_s:
            return
        seconds = least_s + NET_RESTS * self._rest_s
        with contextlib.suppress(ValueError, RuntimeError, AttributeError, OSError):  # no standard error to write to
            faulthandler.dump_traceback_later(seconds, exit=True)
            self._net_until_s = now_s + seconds


def places(frame: FrameType | None) -> tuple[str, list[str]]:
    """Where a thread is: the innermost line, and some of those that led there without asyncio's own."""
    found: list[str] = []
    while frame is not None and len(found) <= PLACES_SHOWN:
        code = frame.f_code
        if not found or f"{os.sep}asyncio{os.sep}" not in code.co_filename:
            found.append(f"{code.co_filename}:{frame.f_lineno} in {code.co_name}")
        frame = frame.f_back
    return (found[0], found[1:]) if found else ("unknown", [])
