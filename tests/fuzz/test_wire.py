"""The short form of the fuzz. `python -m tests.fuzz.wire` is the long one."""

from __future__ import annotations

from tests.fuzz.wire import fuzz


async def test_damaged_conversations_end_in_order() -> None:
    failed = await fuzz(seed=7, numbers=range(5000), loud=False)
    # Most damage must be noticed, or the cases would prove nothing.
    assert failed > 1000
