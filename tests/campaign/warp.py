"""Time that costs nothing: a loop whose clock stands still while there is work, and jumps to the next timer when not.

Owns time, for everybody in the process: deadlines of the loop, the daemon's clock and the kubelet's. Knows nothing of
either. gRPC works on threads of its own, so "no work" is a guess: the loop waits a moment in real time before it jumps,
and longer while a call is out.
"""

from __future__ import annotations

import asyncio
import selectors
import time
import weakref
from collections.abc import Callable
from typing import Any

# How long nothing must come in, in real seconds, before more than a second of time is jumped, in one or in many steps.
IDLE_S = 0.0002
# The same while a client connection of ours is open: its answer is on the way, unless it never comes.
BUSY_S = 0.015
# The same while a thread of the daemon works on an answer: it is sure to come, unless the thread hangs.
WORK_S = 5.0
# No jump is longer: whoever is woken by the other end of a socket gets a turn in between.
JUMP_MAX_S = 30.0
WALL_START_S = 1_700_000_000.0


class _Selector(selectors.SelectSelector):
    """select(2): the only one that waits for less than a millisecond."""

    loop: WarpLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            self.loop.stalled = self.loop.stalled and not events
            return events
        if self.loop.works():
            wait_s = WORK_S
        elif self.loop.busy and not self.loop.stalled:
            wait_s = BUSY_S
        elif timeout is None or self.loop.jumped_s + timeout > 1.0:
            wait_s, self.loop.jumped_s = IDLE_S, 0.0
        else:
            wait_s = 0.0
        if wait_s:
            events = super().select(wait_s)
        if events:
            self.loop.stalled = False
        else:
            self.loop.stalled = self.loop.busy
            self.loop.jump(0.0 if timeout is None else min(timeout, JUMP_MAX_S))
        return events


class WarpLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now_s = 1000.0
        self.jumped_s = 0.0  # since the last wait
        self.stalled = False  # a call is out and has not been answered for a while: do not wait for it again
        self.expects_answer: Callable[[], bool] = lambda: False  # set by who knows that an answer is on the way
        self.works: Callable[[], bool] = lambda: False  # set by who knows that a thread is at work
        self._calls: weakref.WeakSet[asyncio.BaseTransport] = weakref.WeakSet()
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self._now_s

    def jump(self, seconds: float) -> None:
        # Timers due within the clock's resolution fire; a sum of floats may fall short of it by a hair.
        self._now_s += seconds + 1e-9
        self.jumped_s += seconds

    @property
    def busy(self) -> bool:
        return any(not transport.is_closing() for transport in self._calls) or self.expects_answer()

    async def create_unix_connection(self, *args: Any, **keys: Any) -> Any:
        transport, protocol = await super().create_unix_connection(*args, **keys)
        self._calls.add(transport)
        return transport, protocol


class WarpClock:
    """The daemon's clock, and the stand-in's. Wall time can be set, as people and NTP do; time itself goes on."""

    def __init__(self) -> None:
        self.shift_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    def now(self) -> float:
        return WALL_START_S + self.monotonic() + self.shift_s

    def monotonic(self) -> float:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time()  # threads ask, too

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Callable[[], object]:
        return asyncio.get_running_loop().call_later(seconds, ring).cancel


class SteadyClock(WarpClock):
    """For the kubelet, whose `now` never goes back."""

    def now(self) -> float:
        return self.monotonic()


async def breathe(real_s: float) -> None:
    """Lets threads work for a while of real time."""
    until_s = time.monotonic() + real_s
    while time.monotonic() < until_s:
        await asyncio.sleep(0)
        time.sleep(0.0002)  # noqa: ASYNC251 - real time is what is wanted here
