"""How long to wait before the next try: longer each time, and by chance, so that nodes do not come back in step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

FIRST_S = 0.25
MOST_S = 30.0
# A server may ask for more patience; not for any amount of it.
RETRY_AFTER_MOST_S = 120.0


def wait_s(
    attempt: int, rng: Random, *, asked_s: float = 0.0, first_s: float = FIRST_S, most_s: float = MOST_S
) -> float:
    """After `attempt` failures, from 0. Never less than the server asked for."""
    ceiling_s = min(most_s, first_s * float(2 ** min(attempt, 30)))
    return min(asked_s, RETRY_AFTER_MOST_S) + ceiling_s * rng.uniform(0.5, 1.0)


def parse_retry_after(text: str) -> float:
    """Seconds. The other form, a date, is not used by API servers, and counts as nothing."""
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0.0
