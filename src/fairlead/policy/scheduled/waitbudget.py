"""WaitBudget: how long all questions together may keep the kubelet waiting. Pure.

The kubelet asks from its main loop and sets no deadline. It admits pods that it learns of together one after the other,
and its health check fails when the loop has not turned for 300 s. A single wait is bounded elsewhere; this bounds their
sum to 60 s in any 300 s. 110 pods, each refused after a read of 2 s, then stay below the limit.
"""

from __future__ import annotations

MOST_S = 30.0
REFILL_S = 300.0  # from nothing to all of it


class WaitBudget:
    """A store of seconds that fills up with time."""

    __slots__ = ("_at_s", "_left_s")

    def __init__(self) -> None:
        self._left_s = MOST_S
        self._at_s = float("-inf")

    def left(self, now_s: float) -> float:
        return min(MOST_S, self._left_s + (now_s - self._at_s) * (MOST_S / REFILL_S))

    def spend(self, now_s: float, seconds: float) -> None:
        """A wait of so long ends now."""
        self._left_s, self._at_s = max(0.0, self.left(now_s) - seconds), now_s
