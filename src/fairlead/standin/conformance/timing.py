"""Time that a busy machine takes away is given back: a limit counts only while there was a core to run on.

Owns limits and rests of a run. Knows nothing of plugins but their process ids. Where the kernel does not say how long a
thread waited for a core, limits are what the clock says.
"""

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fairlead.standin.clock import running

T = TypeVar("T")
# A limit is stretched by at most so much, and so many times itself: a process that never rests always waits for a core.
MOST_S, MOST_TIMES = 10.0, 10.0
FRESH_S = 0.1  # a look at the threads is good for so long; an older one gives a little more time, never less
SHORTEST_S = 0.002  # what is left of a limit, and not worth another wait
PROC = Path("/proc")

Waits = dict[int, float]  # thread id: seconds that it was ready to run and did not


@dataclass(slots=True)
class LoadAwareTimer:
    """Measures limits by the time in which this process and the plugin could run."""

    pids: Callable[[], Iterable[int]] = lambda: ()
    proc: Path = PROC
    now: Callable[[], float] = time.monotonic
    _last: tuple[float, Waits] = field(default=(-math.inf, {}), init=False)

    def begin(self, limit_s: float) -> "Deadline":
        return Deadline(self, limit_s)

    async def within(self, limit_s: float, work: Awaitable[T]) -> T:
        """The result of `work`, or TimeoutError if it took longer. What is late is cancelled."""
        async with running(work) as (task,):
            if not await self.begin(limit_s).wait(task):
                raise TimeoutError
            result: T = task.result()
            return result

    async def rest(self, seconds: float) -> None:
        """A while in which this process and the plugin could both have run."""
        await self.begin(seconds).wait()

    def recent(self) -> Waits:
        """As `waits`, perhaps a moment ago: there may be hundreds of limits in a second."""
        if self.now() - self._last[0] > FRESH_S:
            self._last = (self.now(), self.waits())
        return self._last[1]

    def waits(self) -> Waits:
        """How long each thread, of ours and of the plugin's, has waited for a core in its life."""
        found: Waits = {}
        ahead, seen = [os.getpid(), *self.pids()], set[int]()
        while ahead:
            if (pid := ahead.pop()) in seen:
                continue
            seen.add(pid)
            for thread, waited_s, children in _read_threads(self.proc / str(pid)):
                found[thread] = waited_s
                if pid != os.getpid():  # ours are other plugins, of other runs
                    ahead += children
        return found


class Deadline:
    """A limit that has begun to count. `more`: so many times as long is waited beyond it, to say how late it was."""

    def __init__(self, timer: LoadAwareTimer, limit_s: float, more: float = 0.0) -> None:
        self._timer = timer
        self._limit_s, self._more_s = limit_s, limit_s * more
        self._first_s = timer.now()
        self._given_s = 0.0
        self.is_late = False
        self._count(limit_s)

    def _count(self, span_s: float) -> None:
        self._span_s = span_s
        self._before = self._timer.recent()
        self._began_s = self._timer.now()

    def give(self, seconds: float) -> None:
        """So much of the time was ours."""
        self._given_s += seconds
        self._span_s += seconds

    def lost_s(self) -> float:
        """What the machine took since the limit began."""
        now = self._timer.waits()
        lost_s = sum(max(0.0, waited_s - self._before.get(thread, 0.0)) for thread, waited_s in now.items())
        return min(lost_s, MOST_S + MOST_TIMES * self._span_s, self._timer.now() - self._began_s)

    def left_s(self) -> float:
        """What is left of the limit: never more than one look at the clock would say, and 0 when it is over."""
        left_s = self._began_s + self._span_s - self._timer.now()
        if left_s <= 0:
            left_s += self.lost_s()
        return left_s if left_s > SHORTEST_S else 0.0

    async def wait(self, *tasks: asyncio.Future[Any]) -> bool:
        """Until one of the tasks has ended, or the limit, with what goes beyond it, is over. Whether one has."""
        while not any(task.done() for task in tasks):
            if left_s := self.left_s():
                if tasks:
                    await asyncio.wait(tasks, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await asyncio.sleep(left_s)
            elif self.is_late or not self._more_s:
                return False
            else:
                self.is_late = True
                self._count(self._more_s)
        return True

    @property
    def took(self) -> str:
        took_s = self._timer.now() - self._first_s - self._given_s
        return f"took {took_s:.{0 if took_s >= 10 else 1}f} s, {self._limit_s:g} were allowed"

    @property
    def never(self) -> str:
        return f"not in {self._limit_s + self._more_s:g} s; {self._limit_s:g} were allowed"


def _read_threads(process: Path) -> list[tuple[int, float, list[int]]]:
    """Each thread of a process: its id, how long it waited for a core, and the processes it started."""
    found = []
    try:
        names = os.listdir(process / "task")  # noqa: PTH208 - names only, and there may be many
    except OSError:
        return []  # it has ended
    for name in names:
        thread = process / "task" / name
        try:
            waited_ns = int((thread / "schedstat").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            continue  # the thread has ended, or this kernel does not count
        try:
            children = [int(word) for word in (thread / "children").read_text().split()]
        except OSError:
            children = []
        found.append((int(name), waited_ns / 1e9, children))
    return found
