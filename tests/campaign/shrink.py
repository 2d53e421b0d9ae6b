"""Makes a failing list short: delta debugging, with a limit in time. Knows nothing of what an event is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(
    items: Sequence[T], fails: Callable[[list[T]], bool], limit_s: float, say: Callable[[str], None] = lambda _: None
) -> list[T]:
    """A short list that still fails. The last item is where it showed, so it stays."""
    until_s = time.monotonic() + limit_s
    best = list(items)
    # What matters is mostly near the end: try short tails first.
    size = 8
    while size < len(best) and time.monotonic() < until_s:
        if fails(best[-size:]):
            best = best[-size:]
            say(f"  {len(best)} events still fail")
            break
        size *= 4
    parts = 2
    while len(best) > 2 and time.monotonic() < until_s:
        body, last = best[:-1], best[-1]
        width = max(1, -(-len(body) // parts))
        for start in range(0, len(body), width):
            shorter = [*body[:start], *body[start + width :], last]
            if time.monotonic() < until_s and fails(shorter):
                best, parts = shorter, max(2, parts - 1)
                say(f"  {len(best)} events still fail")
                break
        else:
            if width == 1:
                break
            parts = min(len(body), parts * 2)
    return best
