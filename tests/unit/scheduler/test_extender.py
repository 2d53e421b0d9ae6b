"""The extender against a fake API server: where pods may go, where they are bound, what is left when things fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.apiserver.server import ApiServer, Fault, api_server
from tests.unit.scheduler.rig import COUNT, INDEX, MEMORY, as_node, as_pod, node, placed, pod, running

from fairlead.policy.packing.packing import Origin
from fairlead.scheduler import extender
from fairlead.scheduler.extender import WOKEN, ExtenderTerms, NotReady
from fairlead.scheduler.protocol import (
    ExtenderArgs,
    MetaPod,
    MetaVictims,
    NodeList,
    PreemptionArgs,
    Victims,
)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        yield server


# --- filter -----------------------------------------------------------------------------------------------------------


async def test_nodes_with_one_device_that_has_room_pass(server: ApiServer):
    plain = {"metadata": {"name": "plain"}, "status": {"capacity": {"cpu": "8"}}}
    async with running(server, node("n1"), node("n2", 8, 1), plain) as rig:
        found = await rig.filter(pod("p", 10), "n1", "n2", "plain", "nosuch")
    assert found.node_names == ["n1"]
    assert found.failed_nodes is None  # the scheduler uses them for nothing when something fits


async def test_the_sum_of_two_devices_is_not_enough(server: ApiServer):
    async with running(server, node("n1", 16, 2), placed("a", 2, "n1", 0)) as rig:
        found = await rig.filter(pod("p", 7), "n1")
        assert found.node_names == ["n1"]
        await rig.seen(placed("b", 3, "n1", 1))
        found = await rig.filter(pod("p", 7), "n1")
    assert found.node_names == []
    assert found.failed_nodes == {"n1": "Insufficient GPU Memory in one device: 7 asked, at most 6 free"}
    assert found.failed_and_unresolvable_nodes is None


async def test_what_no_leaving_pod_would_change_is_for_good(server: ApiServer):
    plain = {"metadata": {"name": "plain"}, "status": {"capacity": {"cpu": "8"}}}
    async with running(server, node("small", 8, 1), plain) as rig:
        found = await rig.filter(pod("p", 10), "small", "plain")
    assert found.failed_nodes == {}
    assert found.failed_and_unresolvable_nodes == {
        "small": "Insufficient GPU Memory in one device: 10 asked, and its devices are smaller or fewer",
        "plain": "The node plain is not for GPU share, need skip",
    }


async def test_a_pod_that_asks_for_nothing_of_ours_passes_everywhere(server: ApiServer):
    async with running(server, node("n1")) as rig:
        found = await rig.filter(pod("p", 1, resource="cpu"), "n1", "other")
    assert found.node_names == ["n1", "other"]


async def test_a_pod_that_cannot_be_read_is_told_so(server: ApiServer):
    odd = pod("p", 1)
    odd["spec"]["containers"][0]["resources"]["limits"][MEMORY] = "many"
    async with running(server, node("n1")) as rig:
        found = await rig.filter(odd, "n1")
    assert found.failed_and_unresolvable_nodes is not None
    assert "it is not a quantity" in found.failed_and_unresolvable_nodes["n1"]


async def test_the_best_nodes_are_answered_and_no_more(server: ApiServer):
    nodes = [node(f"n{number}") for number in range(9)]
    async with running(server, *nodes, placed("a", 6, "n5", 1), terms=ExtenderTerms(nodes=3)) as rig:
        found = await rig.filter(pod("p", 10), *(f"n{number}" for number in range(9)))
    assert found.node_names == ["n5", "n0", "n1"]


async def test_whole_nodes_are_answered_from_what_they_say_and_nothing_is_booked(server: ApiServer):
    template = node("template", 80, 1)
    raw = [msgspec.Raw(msgspec.json.encode(thing)) for thing in (template, node("n1", 8, 1))]
    async with running(server, node("n1", 8, 1), placed("a", 1, "n1", 0)) as rig:
        args = ExtenderArgs(as_pod(pod("p", 40)), nodes=NodeList(raw))
        found = await rig.extender.filter(args)
        assert found.node_names == ["template"]
        assert found.nodes is not None
        assert found.nodes.items == [raw[0]]
        assert rig.view.packings[0].booking("uid-p") is None
        assert rig.view.node_names() == {"n1"}


@pytest.mark.parametrize("args", [ExtenderArgs(), ExtenderArgs(as_pod(pod("p", 1)))])
async def test_a_request_without_pod_or_nodes_is_an_error(server: ApiServer, args: ExtenderArgs):
    async with running(server, node("n1")) as rig:
        assert (await rig.extender.filter(args)).error.startswith("the request has n")


async def test_nothing_is_answered_before_the_lists_are_read(server: ApiServer):
    async with running(server, node("n1")) as rig:
        rig.extender.feed.pods.complete = False
        for question in (
            rig.filter(pod("p", 1), "n1"),
            rig.bind(pod("p", 1), "n1"),
            rig.extender.preempt(PreemptionArgs(as_pod(pod("p", 1)))),
        ):
            with pytest.raises(NotReady):
                await question


async def test_a_node_that_cannot_be_read_is_an_error(server: ApiServer):
    async with running(server, node("n1")) as rig:
        bad = NodeList([msgspec.Raw(b'{"metadata": 1}')])
        assert "a node cannot be read" in (await rig.extender.filter(ExtenderArgs(as_pod(pod("p", 1)), bad))).error
        plain = NodeList([msgspec.Raw(msgspec.json.encode(node("n1")))])
        found = await rig.extender.filter(ExtenderArgs(as_pod(pod("p", 1, resource="cpu")), plain))
        assert found.node_names == ["n1"]
        scored = await rig.extender.prioritize(ExtenderArgs(as_pod(pod("p", 1)), plain))
        assert [(one.host, one.score) for one in scored] == [("n1", 10)]


async def test_a_right_that_is_missing_for_waking_is_reported_and_nothing_else_suffers(server: ApiServer):
    waiting = pod("p", 16)
    async with running(server, node("n1", 16, 1), placed("a", 9, "n1", 0), waiting) as rig:
        assert (await rig.filter(waiting, "n1")).node_names == []
        server.faults.append(Fault(403, "no", methods="PATCH"))
        server.store.remove("pods", "a", "default")
        await rig.until(lambda: any(fact["event"] == "wake-failed" for fact in rig.facts))
        assert (await rig.filter(waiting, "n1")).node_names == ["n1"]


async def test_a_refusal_does_not_wait_for_a_server_that_is_away(server: ApiServer):
    waiting = pod("p", 16)
    async with running(server, node("n1", 16, 1), placed("a", 9, "n1", 0), waiting) as rig:
        server.faults.append(Fault(hang=True, path="pods$"))
        assert (await rig.filter(waiting, "n1")).node_names == []


async def test_room_that_the_scheduler_knows_of_first_is_not_missed(server: ApiServer):
    waiting = pod("p", 16)
    async with running(server, node("n1", 16, 1), placed("a", 9, "n1", 0), waiting) as rig:
        asking = asyncio.create_task(rig.filter(waiting, "n1"))
        await asyncio.sleep(0)
        server.store.remove("pods", "a", "default")
        assert (await asking).node_names == ["n1"]


async def test_many_refusals_neither_ask_the_server_nor_wait_each(server: ApiServer, monkeypatch: pytest.MonkeyPatch):
    """kube-scheduler asks about all pods that wait whenever one leaves, and does nothing else meanwhile."""
    monkeypatch.setattr(extender, "MOMENT_S", 0.2)
    monkeypatch.setattr(extender, "MOMENT_EVERY_S", 60.0)
    async with running(server, node("n1", 16, 1), placed("a", 9, "n1", 0)) as rig:
        before = len(server.requests)
        async with asyncio.timeout(5):  # 200 of them would take 40 s
            for number in range(200):
                assert (await rig.filter(pod(f"p{number}", 16), "n1")).node_names == []
        assert len(server.requests) == before


# --- Between filter and bind ------------------------------------------------------------------------------------------


async def test_a_filter_keeps_room_for_its_bind(server: ApiServer):
    first, second = pod("p", 16), pod("q", 16)
    async with running(server, node("n1", 16, 1), first, second) as rig:
        assert (await rig.filter(first, "n1")).node_names == ["n1"]
        assert (await rig.filter(second, "n1")).node_names == []
        assert (await rig.filter(first, "n1")).node_names == ["n1"]  # its own room is free for it
        assert (await rig.bind(first, "n1")).error == ""


async def test_a_pod_that_was_refused_is_told_when_room_comes(server: ApiServer):
    waiting = pod("p", 16)
    async with running(server, node("n1", 16, 1), placed("a", 9, "n1", 0), waiting) as rig:
        assert (await rig.filter(waiting, "n1")).node_names == []
        server.store.remove("pods", "a", "default")
        await rig.until(lambda: WOKEN in (rig.stored("p")["metadata"].get("annotations") or {}))
        assert (await rig.filter(waiting, "n1")).node_names == ["n1"]


async def test_a_pod_that_was_refused_is_told_of_a_tentative_room_that_is_given_back(server: ApiServer):
    first, second = pod("p", 16), pod("q", 16)
    async with running(server, node("n1", 16, 1), node("n2", 16, 1), first, second) as rig:
        assert (await rig.filter(first, "n1")).node_names == ["n1"]
        assert (await rig.filter(second, "n1")).node_names == []
        assert (await rig.bind(first, "n2")).error == ""  # the scheduler chose another one
        await rig.until(lambda: WOKEN in (rig.stored("q")["metadata"].get("annotations") or {}))


async def test_a_change_that_the_scheduler_has_seen_is_seen_before_a_refusal(server: ApiServer):
    waiting = pod("p", 16)
    async with running(server, node("n1", 16, 1), placed("a", 9, "n1", 0), waiting) as rig:
        server.store.remove("pods", "a", "default")  # not yet seen by the extender
        assert (await rig.filter(waiting, "n1")).node_names == ["n1"]


# --- Watches ----------------------------------------------------------------------------------------------------------


async def test_nodes_and_pods_come_and_go(server: ApiServer):
    async with running(server, node("n1", 16, 1)) as rig:
        room = rig.view.packings[0].nodes
        await rig.seen(placed("a", 9, "n1", 0))
        assert room["n1"].used == (9,)
        done = placed("a", 9, "n1", 0, status={"phase": "Succeeded"})
        rig.add(done)
        await rig.until(lambda: room["n1"].used == (0,))
        await rig.seen(node("n2"))
        rig.add(node("n2", 64, 2))
        await rig.until(lambda: room["n2"].devices[0].units == 32)
        server.store.remove("nodes", "n2")
        await rig.until(lambda: "n2" not in rig.view.node_names())


# --- prioritize and preempt -------------------------------------------------------------------------------------------


async def test_scores_are_by_rank(server: ApiServer):
    nodes = [node("n1"), node("n2"), node("n3", 8, 1)]
    async with running(server, *nodes, placed("a", 6, "n2", 0)) as rig:
        args = ExtenderArgs(as_pod(pod("p", 10)), node_names=["n1", "n2", "n3"])
        found = {one.host: one.score for one in await rig.extender.prioritize(args)}
        assert found == {"n1": 0, "n2": 10, "n3": 0}
        nothing = ExtenderArgs(as_pod(pod("p", 1, resource="cpu")), node_names=["n1"])
        assert [one.score for one in await rig.extender.prioritize(nothing)] == [0]


async def test_preemption_takes_the_pods_that_free_a_device(server: ApiServer):
    held = [placed("a", 8, "n1", 0), placed("b", 8, "n1", 0), placed("c", 16, "n1", 1), placed("d", 16, "n2", 0)]
    important = pod("p", 16, spec={"priority": 10})
    async with running(server, node("n1"), node("n2", 16, 1), *held, important) as rig:
        args = PreemptionArgs(
            as_pod(important),
            node_name_to_meta_victims={
                "n1": MetaVictims([MetaPod("uid-a")], 1),
                "n2": MetaVictims([MetaPod("uid-d")]),
                "nosuch": MetaVictims([MetaPod("uid-z")]),
            },
        )
        found = (await rig.extender.preempt(args)).node_name_to_meta_victims
        assert {name: [one.uid for one in each.pods or ()] for name, each in found.items()} == {
            "n1": ["uid-c"],  # one pod in place of the one that frees no device
            "n2": ["uid-d"],
        }
        assert found["n1"].violations == 1
        whole = PreemptionArgs(as_pod(important), node_name_to_victims={"n2": Victims([as_pod(held[3])])})
        assert list((await rig.extender.preempt(whole)).node_name_to_meta_victims) == ["n2"]


async def test_victims_that_the_scheduler_needs_for_other_resources_leave_too(server: ApiServer):
    held = [placed("a", 8, "n1", 0), placed("b", 8, "n1", 0), placed("c", 16, "n1", 1)]
    held[0]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "4"}
    important = pod("p", 16, spec={"priority": 10})
    async with running(server, node("n1"), *held, important) as rig:
        args = PreemptionArgs(as_pod(important), node_name_to_meta_victims={"n1": MetaVictims([MetaPod("uid-a")])})
        found = (await rig.extender.preempt(args)).node_name_to_meta_victims
        assert [one.uid for one in found["n1"].pods or ()] == ["uid-a", "uid-b"]


async def test_room_that_preemption_makes_is_kept_for_its_pod(server: ApiServer):
    important = pod("p", 16, spec={"priority": 10}, status={"nominatedNodeName": "n1"})
    other, urgent = pod("q", 10), pod("u", 10, spec={"priority": 99})
    async with running(server, node("n1", 16, 1), important, other, urgent) as rig:
        assert (await rig.filter(other, "n1")).node_names == []
        assert (await rig.filter(important, "n1")).node_names == ["n1"]
        rig.view.release("uid-p", Origin.TENTATIVE)
        assert (await rig.filter(urgent, "n1")).node_names == ["n1"]


def test_the_rig_makes_what_it_says():
    assert as_node(node("n1")).status.capacity == {MEMORY: "32", COUNT: "2", "cpu": "8"}
    assert (as_pod(placed("a", 1, "n1", 0)).metadata.annotations or {})[INDEX] == "0"
