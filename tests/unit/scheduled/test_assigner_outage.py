"""Questions of the kubelet while the API server is away or its watch is silent: asked anew, bounded, truly answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.clock import FakeClock
from tests.unit.scheduled.cards import ASSIGN
from tests.unit.scheduled.desk import FAST, Desk, desk

from fairlead.cluster import reflector
from fairlead.cluster.pods import PodSnapshot
from fairlead.model.assign import NodeEnv
from fairlead.model.errors import ClusterAway, NotAssigned
from fairlead.policy.scheduled.decide import SILENT_S


async def until(at: Desk, condition: Callable[[PodSnapshot], bool]) -> None:
    async with asyncio.timeout(20):
        async for now in at.assigner.pods.latest.follow():
            if condition(now):
                return


def indexes(grant: object) -> list[str]:
    return [device.index for device in grant.devices]  # type: ignore[attr-defined]


async def test_a_pod_is_admitted_as_soon_as_the_server_is_back():
    async with desk(clock=FakeClock()) as at:  # which stands still: no back-off ends by itself
        await at.server.stop()
        await until(at, lambda now: bool(now.problem))
        await at.server.start()
        at.bind("p", 4, card="1", time="1")
        assert indexes(await at.admit("p", 4)) == ["1"]


async def test_a_pod_is_admitted_when_the_server_comes_back_while_the_kubelet_waits():
    async with desk(replace(ASSIGN, wait_s=20.0)) as at:
        await at.server.stop()
        await until(at, lambda now: bool(now.problem))
        waiting = asyncio.create_task(at.admit("p", 4))
        await asyncio.sleep(0)
        at.bind("p", 4, card="2", time="1")
        await at.server.start()
        assert indexes(await waiting) == ["2"]


async def test_the_status_says_that_the_server_is_away_and_that_it_is_back():
    async with desk(clock=FakeClock()) as at:
        await at.server.stop()
        await at.until(lambda: "cannot be reached" in at.problems.get("pods", ""))
        assert at.problems["pods"].startswith("the pods of node 'n1' are not known: ")
        await at.server.start()
        await at.assigner.pods.check()
        await at.until(lambda: not at.problems["pods"])


async def test_a_pod_that_a_silent_watch_has_missed_is_admitted():
    async with desk(clock=FakeClock()) as at:
        at.server.stalled = True
        await at.server.watched()
        at.bind("p", 4, card="1", time="1")
        assert indexes(await at.admit("p", 4)) == ["1"]


async def test_a_silent_watch_is_reported():
    clock = FakeClock()
    async with desk(clock=clock) as at:
        at.server.stalled = True
        await at.server.watched()
        at.bind("p", 4, card="1", time="1")
        await at.admit("p", 4)
        await clock.advance(reflector.LATE_S)
        await at.until(lambda: "the watch of pods tells nothing" in at.problems.get("pods", ""))


async def test_a_pod_is_not_taken_for_one_that_is_gone_after_a_silence():
    clock = FakeClock()
    async with desk(clock=clock) as at:
        at.bind("old", 4, card="1", time="1")
        await at.seen()
        at.server.stalled = True
        at.server.store.remove("pods", "old", "default")
        at.bind("new", 4, card="2", time="2")
        await clock.advance(SILENT_S + 1)
        assert indexes(await at.admit("new", 4)) == ["2"]


async def test_a_pod_is_refused_as_unknown_after_a_read_only():
    async with desk() as at:
        with pytest.raises(NotAssigned, match=r"no pod asks for 4 \(read from the API server just now\)"):
            await at.admit("p", 4)


async def test_a_pod_that_was_not_seen_is_not_reported_as_absent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reflector, "CHECK_S", 0.05)
    async with desk() as at:
        at.server.freeze()
        at.bind("p", 4, card="1", time="1")
        with pytest.raises(ClusterAway, match=r"is not known: list pods at http://127\.0\.0\.1:\d+: no answer within"):
            await at.admit("p", 4)
        at.server.thaw()
        await at.assigner.pods.check()
        assert indexes(await at.admit("p", 4)) == ["1"]


async def test_a_pod_is_judged_by_its_newest_annotations():
    async with desk() as at:
        at.bind("p", 4, card="9", time="1")
        await at.seen()
        at.server.stalled = True
        at.bind("p", 4, card="2", time="1")
        assert indexes(await at.admit("p", 4)) == ["2"]


async def test_a_question_and_its_allocate_wait_for_one_read_in_vain(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reflector, "CHECK_S", 0.05)
    async with desk(clock=FakeClock()) as at:
        patience = at.assigner.pods.patience
        patience.spend(0.0, patience.left(0.0))
        at.server.freeze()
        before = at.server.reads("pods")
        with pytest.raises(ClusterAway):
            await at.admit("p", 4)
        assert at.server.reads("pods") - before == 1


async def test_many_questions_in_vain_share_one_patience():
    clock = FakeClock()
    async with desk(replace(ASSIGN, wait_s=20.0), clock=clock) as at:
        patience = at.assigner.pods.patience
        patience.spend(clock.monotonic(), patience.left(clock.monotonic()))
        with pytest.raises(NotAssigned):  # at once: the clock stands still
            await at.admit("p", 4)


async def test_labels_are_read_as_soon_as_the_server_is_back():
    labelled = replace(FAST, wait_s=20.0, node_env=(NodeEnv("isolation", "off", {"PLAIN": "yes"}),))
    async with desk(labelled, node=False, clock=FakeClock()) as at:
        await at.server.stop()
        await until(at, lambda now: bool(now.problem))
        await at.server.start()
        at.bind("p", 4, card="1", time="1")
        at.server.store.put("nodes", {"metadata": {"name": "n1", "labels": {"isolation": "off"}}, "status": {}})
        await at.admit("p", 4)
        assert at.assigner.env(at.resource) == {"PLAIN": "yes"}


async def test_waiting_for_labels_is_bounded_by_the_same_patience():
    clock = FakeClock()
    labelled = replace(ASSIGN, wait_s=20.0, node_env=(NodeEnv("isolation", "off", {"PLAIN": "yes"}),))
    async with desk(labelled, node=False, clock=clock) as at:
        at.bind("p", 4, card="1", time="1")
        await at.seen()
        patience = at.assigner.pods.patience
        patience.spend(clock.monotonic(), patience.left(clock.monotonic()))
        async with asyncio.timeout(10):
            with pytest.raises(ClusterAway, match="its labels are not read yet"):  # at once
                await at.admit("p", 4)
