"""Room for bodies: who may read one into memory now, and who waits. First come, first served; small ones never wait."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.scheduler.http.limits import Counters, Limits


class Budget:
    def __init__(self, limits: Limits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._queue: dict[Share, int] = {}  # in the order of their coming; what each wants

    def _fits(self, share: Share, size: int) -> bool:
        return self._counters.bytes_in_flight - share.size + size <= self._limits.bodies_bytes

    def want(self, share: Share, size: int) -> bool:
        if size <= self._limits.small_body_bytes or (not self._queue and self._fits(share, size)):
            self._give(share, size)
            return True
        self._queue[share] = size
        self._counters.bodies_waiting = len(self._queue)
        return False

    def release(self, share: Share) -> None:
        self._queue.pop(share, None)
        self._give(share, 0)
        while self._queue:
            first, size = next(iter(self._queue.items()))
            if not self._fits(first, size):
                break
            del self._queue[first]
            self._give(first, size)
            first.on_room()
        self._counters.bodies_waiting = len(self._queue)

    def _give(self, share: Share, size: int) -> None:
        self._counters.bytes_in_flight += size - share.size
        share.size = size


class Share:
    """What one connection holds."""

    __slots__ = ("_budget", "on_room", "size")

    def __init__(self, budget: Budget, on_room: Callable[[], None]) -> None:
        self._budget = budget
        self.on_room = on_room  # called once after a `want` that was not met at once. Must not call back
        self.size = 0

    def want(self, size: int) -> bool:
        """So much in all. False: not yet."""
        return self._budget.want(self, size)

    def release(self) -> None:
        self._budget.release(self)
