"""A scheduler chose the card, and then something fails: every time there is an end to the wait, and a reason."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.system.desk import DOSLAB, GPUSHARE, VOLCANO, Desk, desk
from tests.system.rig import ask_status

from fairlead.testing import Kubelet


async def problems(at: Desk) -> list[str]:
    return list((await ask_status(at.node.daemon)).problems)


async def until_problem(at: Desk, words: str) -> str:
    found = await at.node.until(lambda: next((p for p in at.node.daemon.problems.values() if words in p), ""))
    return str(found)


async def test_an_api_server_that_is_away_ends_in_a_reason_and_comes_back(kubelet: Kubelet, kubelet_root: Path):
    async with desk(GPUSHARE, kubelet, kubelet_root) as at:
        await at.server.stop()
        pods = at.node.daemon.cluster.assigner.pods  # type: ignore[union-attr]  # it runs
        async with asyncio.timeout(20):
            async for now in pods.latest.follow():
                if now.problem:
                    break
        pod = await at.node.kubelet.run_pod("lost", {"main": {GPUSHARE.resource: 4}})
        assert pod.phase == "Failed"
        assert "which pod of node 'n1' asks for 4 of it is not known" in pod.message
        # Other resources, and the daemon itself, do not mind.
        assert at.node.phase(GPUSHARE.resource) is not None
        await at.server.start()
        async with asyncio.timeout(30):
            async for now in pods.latest.follow():
                if not now.problem:
                    break
        assert at.told(await at.bind("found", {"main": 4}, 2)) == 2
        await at.marked("found")


async def test_marks_that_are_forbidden_are_told_with_verb_and_resource(kubelet: Kubelet, kubelet_root: Path):
    async with desk(VOLCANO, kubelet, kubelet_root) as at:
        at.server.allowed = {("list", "pods"), ("watch", "pods"), ("list", "nodes"), ("watch", "nodes")}
        pod = await at.bind("p", {"main": 4}, 1)
        assert at.told(pod) == 1  # it has its card all the same
        told = await until_problem(at, "pod default/p is not annotated")
        assert 'resources: ["pods"]' in told or "patch pods" in told
        assert "patch" in told
        assert any("is not annotated" in problem for problem in await problems(at))
        at.server.allowed = None
        await at.marked("p")


async def test_a_pod_is_known_by_its_next_container_and_the_other_is_promised_what_is_left(
    kubelet: Kubelet, kubelet_root: Path
):
    async with desk(VOLCANO, kubelet, kubelet_root) as at:
        at.write("first", {"main": 12}, at.promise(1))
        at.write("second", {"main": 12, "more": 4}, at.promise(2))
        # The kubelet asks for `second`; it is taken for `first`, until its other container is asked for.
        second = await at.admit("second", {"main": 12, "more": 4})
        assert second.phase == "Running", second.message
        assert (at.told(second), at.told(second, "more")) == (1, 1)
        assert (await at.marked("second"))[VOLCANO.device] == at.word(1)
        first = await at.admit("first", {"main": 12})
        assert at.told(first) == 2
        assert (await at.marked("first"))[VOLCANO.device] == at.word(2)
        assert await problems(at) == []


async def test_what_cannot_be_mended_is_in_status_and_journal(kubelet: Kubelet, kubelet_root: Path):
    async with desk(VOLCANO, kubelet, kubelet_root) as at:
        at.write("first", {"main": 4}, at.promise(1))
        at.write("second", {"main": 4, "more": 12}, at.promise(2))
        at.write("third", {"main": 14}, at.promise(2))  # more than the card has: `first` cannot go there
        second = await at.admit("second", {"main": 4, "more": 12})
        assert (at.told(second), at.told(second, "more")) == (1, 1)
        wrong = await at.node.until_fact("assignment-wrong")
        assert wrong.keys["reason"] == f"default/second has {at.cards[1]}, and was assigned 2"
        assert any("default/second has" in problem for problem in await problems(at))
        # The one it was taken from is gone, so the promise can say what is so.
        at.server.store.remove("pods", "first", "default")
        assert (await at.marked("second"))[VOLCANO.device] == "1"


async def test_a_container_with_the_name_of_another_pod_is_in_status_and_journal(kubelet: Kubelet, kubelet_root: Path):
    async with desk(DOSLAB, kubelet, kubelet_root) as at:
        at.write("a", {"main": 4}, at.promise(1))
        at.write("b", {"main": 4}, at.promise(2))
        b = await at.admit("b", {"main": 4})
        assert b.containers["main"].env["POD_NAME"] == "a"
        await at.node.until_fact("assignment-wrong")
        told = await until_problem(at, "default/b was given the name and annotations of default/a")
        assert "Delete the pod, so that it is admitted anew" in told
        await at.end(b)
        assert at.told(await at.bind("c", {"main": 6}, 0)) == 0
        await at.node.until(lambda: not any("was given the name" in p for p in at.node.daemon.problems.values()))


async def test_a_promised_card_that_has_failed_is_refused_with_its_reason(kubelet: Kubelet, kubelet_root: Path):
    async with desk(VOLCANO, kubelet, kubelet_root) as at:
        await at.node.steer(do="fail", device="1", xid=79)
        await at.node.kubelet.wait_for_allocatable(VOLCANO.resource, 48)
        pod = await at.bind("p", {"main": 4}, 1)
        assert pod.phase == "Failed"
        assert f"devices not fit for use: {at.cards[1]}" in pod.message
        assert at.told(await at.bind("q", {"main": 4}, 2)) == 2
