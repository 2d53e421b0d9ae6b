"""A quota of facts: a backend that floods its sink must not wash what others did out of the journal."""

from __future__ import annotations

from typing import Any

from fairlead.model.ports import Clock, Record

FACTS = 1000  # in one window; as many as the journal keeps
WINDOW_S = 10.0


class Quota:
    """Passes so many facts of one backend on in each window. How many it left out is a fact of the next window."""

    def __init__(self, backend: str, clock: Clock, record: Record, facts: int = FACTS) -> None:
        self._backend, self._clock, self._record, self._facts = backend, clock, record, facts
        self._began_s = float("-inf")
        self._passed = self._left_out = 0

    def record(self, kind: str, **keys: Any) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._began_s >= WINDOW_S:
            self._began_s, self._passed = now_s, 0
            if self._left_out:
                self._record("facts-left-out", backend=self._backend, count=self._left_out)
                self._left_out = 0
        self._passed += 1
        if self._passed <= self._facts:
            self._record(kind, **keys)
        else:
            self._left_out += 1
