"""What a daemon does with the cluster: a part that stumbles is started again."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.clock import FakeClock

from fairlead.app import clusterside
from fairlead.app.clusterside import RETRY_S, ClusterSide
from fairlead.cluster import reflector


class Part:
    def __init__(self) -> None:
        self.runs = 0

    async def run(self) -> None:
        self.runs += 1
        if self.runs == 1:
            raise ExceptionGroup("several", [KeyError("gone")])
        await asyncio.Event().wait()


async def test_a_part_that_stumbles_is_told_about_and_started_again():
    facts: list[tuple[str, dict[str, Any]]] = []
    notes: list[tuple[str, str]] = []
    cluster: Any = ClusterSide.__new__(ClusterSide)
    cluster._clock = clock = FakeClock()
    cluster._cluster = SimpleNamespace(client=SimpleNamespace(rng=Random(1)))
    cluster._record = lambda kind, **keys: facts.append((kind, keys))
    cluster._note = lambda topic, problem: notes.append((topic, problem))
    part: Any = Part()
    keeping = asyncio.create_task(cluster._keep(part))
    try:
        await clock.advance(RETRY_S)
        await clock.advance(0)
        assert part.runs == 2
        assert facts == [("task-crashed", {"task": "part", "reason": "KeyError: 'gone'"})]
        assert notes == [("part", "the task 'part' had to be started again: KeyError: 'gone'")]
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_a_status_looks_whether_a_silent_server_answers_and_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(clusterside, "KNOCK_S", 0.05)

    class Watch:
        def __init__(self) -> None:
            self.answer, self.knocks = asyncio.Event(), 0

        async def ping(self) -> None:
            self.knocks += 1
            await self.answer.wait()

    cluster: Any = ClusterSide.__new__(ClusterSide)
    cluster._knocking = set()
    cluster._cluster, cluster.assigner = SimpleNamespace(watch=Watch()), SimpleNamespace(pods=Watch())
    watches = [cluster._cluster.watch, cluster.assigner.pods]
    await cluster.knock()
    assert [watch.knocks for watch in watches] == [1, 1]
    assert len(cluster._knocking) == 2  # they go on
    for watch in watches:
        watch.answer.set()
    await asyncio.gather(*cluster._knocking)
    await cluster.knock()
    assert all(task.done() for task in cluster._knocking)


def test_a_status_waits_until_a_ping_has_ended():
    """Else the first status is clean, and a person who asks once is told that all is well."""
    assert clusterside.KNOCK_S > reflector.PING_S
