"""A quota of facts: a flood of one backend is cut, and said."""

from __future__ import annotations

from typing import Any

from tests.clock import FakeClock

from fairlead.engine.quota import WINDOW_S, Quota


async def test_a_flood_is_cut_and_counted() -> None:
    facts: list[tuple[str, dict[str, Any]]] = []
    clock = FakeClock()
    quota = Quota("bad", clock, lambda kind, **keys: facts.append((kind, keys)), facts=3)
    for number in range(10):
        quota.record("device-found", device=number)
    assert [keys["device"] for _, keys in facts] == [0, 1, 2]
    await clock.advance(WINDOW_S)
    quota.record("device-gone", device=0)
    assert facts[3:] == [("facts-left-out", {"backend": "bad", "count": 7}), ("device-gone", {"device": 0})]
    await clock.advance(WINDOW_S)
    quota.record("device-gone", device=1)
    assert len(facts) == 6  # nothing was left out
