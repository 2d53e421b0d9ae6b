"""A scheduler chose the card: in every dialect, the container gets that card, and the pod is told apart from others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.system.desk import DIALECTS, DOSLAB, GPUSHARE, VOLCANO, Dialect, desk

from fairlead.testing import Kubelet

dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


@dialects
async def test_a_container_gets_the_card_that_its_pod_was_promised(
    dialect: Dialect, kubelet: Kubelet, kubelet_root: Path
):
    async with desk(dialect, kubelet, kubelet_root) as at:
        for card in (2, 0, 3, 1):
            pod = await at.bind(f"p{card}", {"main": 5}, card)
            assert pod.phase == "Running", pod.message
            assert at.told(pod) == card
            assert at.lies_on(pod) == {card}
            await at.marked(pod.name)


@dialects
async def test_two_pods_of_one_size_at_one_moment_in_the_order_of_their_promises(
    dialect: Dialect, kubelet: Kubelet, kubelet_root: Path
):
    async with desk(dialect, kubelet, kubelet_root) as at:
        at.write("a", {"main": 4}, at.promise(1))
        at.write("b", {"main": 4}, at.promise(2))
        first, second = await at.admit("a", {"main": 4}), await at.admit("b", {"main": 4})
        assert (at.told(first), at.told(second)) == (1, 2)
        for pod, card in ((first, 1), (second, 2)):
            assert (await at.marked(pod.name))[dialect.device] == at.word(card)


async def test_two_pods_of_one_size_in_the_other_order_are_exchanged(kubelet: Kubelet, kubelet_root: Path):
    """Where the scheduler follows what its annotations say."""
    async with desk(VOLCANO, kubelet, kubelet_root) as at:
        at.write("a", {"main": 4}, at.promise(1))
        at.write("b", {"main": 4}, at.promise(2))
        second, first = await at.admit("b", {"main": 4}), await at.admit("a", {"main": 4})
        assert {at.told(first), at.told(second)} == {1, 2}
        for pod in (first, second):
            # What the container was told, where its slots lie and what the pod says: all the same.
            assert at.lies_on(pod) == {at.told(pod)}
            assert (await at.marked(pod.name))[VOLCANO.device] == at.word(at.told(pod))
        swapped = at.node.find("assignment-rewritten")
        assert swapped is not None


@pytest.mark.parametrize("dialect", [DOSLAB, GPUSHARE], ids=lambda dialect: dialect.name)
async def test_two_pods_of_one_size_in_the_other_order_keep_what_their_scheduler_wrote(
    dialect: Dialect, kubelet: Kubelet, kubelet_root: Path
):
    """It counts by that. The one that has another card is reported, and the other still gets its own."""
    async with desk(dialect, kubelet, kubelet_root) as at:
        at.write("a", {"main": 4}, at.promise(1))
        at.write("b", {"main": 4}, at.promise(2))
        second, first = await at.admit("b", {"main": 4}), await at.admit("a", {"main": 4})
        assert (at.told(first), at.told(second)) == (1, 1)
        assert at.lies_on(first) == at.lies_on(second) == {1}
        assert (await at.marked("a"))[dialect.device] == at.word(1)
        assert (await at.marked("b"))[dialect.device] == at.word(2)
        await at.node.until(lambda: "fairlead.dev/actual-device" in at.annotations("b"))
        assert at.annotations("b")["fairlead.dev/actual-device"] == f'{{"main":{{"{at.word(1)}":4}}}}'
        assert "fairlead.dev/actual-device" not in at.annotations("a")
        assert at.node.find("assignment-rewritten") is None
        wrong = await at.node.until_fact("assignment-wrong")
        assert wrong.keys["reason"].startswith(f"default/b has {at.cards[1]}, and was assigned {at.word(2)}")


@dialects
async def test_a_pod_with_several_containers(dialect: Dialect, kubelet: Kubelet, kubelet_root: Path):
    async with desk(dialect, kubelet, kubelet_root) as at:
        # Another pod asks for as much as the second container, and was assigned its card earlier.
        at.write("other", {"main": 3}, at.promise(0))
        pod = await at.bind("many", {"main": 5, "none": 0, "side": 3}, 3)
        assert pod.phase == "Running", pod.message
        assert (at.told(pod, "main"), at.told(pod, "side")) == (3, 3)
        await at.marked("many")
        other = await at.admit("other", {"main": 3})
        assert at.told(other) == 0


@dialects
async def test_an_init_container_that_uses_the_card(dialect: Dialect, kubelet: Kubelet, kubelet_root: Path):
    async with desk(dialect, kubelet, kubelet_root) as at:
        at.write("other", {"main": 4}, at.promise(0))
        pod = await at.bind("warm", {"main": 4}, 2, init={"setup": 6})
        assert pod.phase == "Running", pod.message
        assert (at.told(pod, "setup"), at.told(pod, "main")) == (2, 2)
        assert set(pod.containers["main"].devices[dialect.resource]) <= set(
            pod.containers["setup"].devices[dialect.resource]
        )
        await at.marked("warm")


@dialects
async def test_a_pod_that_is_deleted_while_it_waits(dialect: Dialect, kubelet: Kubelet, kubelet_root: Path):
    async with desk(dialect, kubelet, kubelet_root) as at:
        at.write("gone", {"main": 4}, at.promise(1))
        at.server.store.remove("pods", "gone", "default")
        pod = await at.bind("here", {"main": 4}, 2)
        assert at.told(pod) == 2
        # And one that goes after another was taken for it.
        at.write("late", {"main": 6}, at.promise(0))
        at.write("next", {"main": 6}, at.promise(3))
        given = await at.admit("next", {"main": 6})
        at.server.store.remove("pods", "late", "default")
        card = at.told(given) if dialect is VOLCANO else 3  # the others' schedulers count by what they wrote
        assert (await at.marked("next"))[dialect.device] == at.word(card)


@dialects
async def test_a_promise_that_never_arrives(dialect: Dialect, kubelet: Kubelet, kubelet_root: Path):
    async with desk(dialect, kubelet, kubelet_root) as at:
        at.write("unknown", {"main": 4}, {})
        pod = await at.admit("unknown", {"main": 4})
        assert pod.phase == "Failed"
        assert f"{dialect.resource}: no device for 4 of it on node 'n1': default/unknown: its annotation" in pod.message
        # Nothing is lost: the next one gets what it was promised.
        assert at.told(await at.bind("next", {"main": 4}, 1)) == 1


@dialects
async def test_a_promise_for_another_node(dialect: Dialect, kubelet: Kubelet, kubelet_root: Path):
    async with desk(dialect, kubelet, kubelet_root) as at:
        at.write("elsewhere", {"main": 4}, at.promise(1), node="n2")
        pod = await at.node.kubelet.run_pod("stray", {"main": {dialect.resource: 4}})
        assert pod.phase == "Failed"
        assert "no pod asks for 4" in pod.message
        assert at.told(await at.bind("here", {"main": 4}, 3)) == 3
        assert (
            dialect.assigned not in at.annotations("elsewhere")
            or at.annotations("elsewhere")[dialect.assigned] == "false"
        )


@dialects
async def test_a_promise_that_comes_while_the_kubelet_waits(dialect: Dialect, kubelet: Kubelet, kubelet_root: Path):
    async with desk(dialect, kubelet, kubelet_root) as at:
        at.write("slow", {"main": 4}, {})
        at.node.write(at.node.config.read_text().replace("wait: 200ms", "wait: 10s"))
        at.node.daemon.reload()
        await at.node.until_fact("config-applied")

        admitting = asyncio.create_task(at.admit("slow", {"main": 4}))
        await at.node.kubelet.wait_for(lambda: any(c.method == "GetPreferredAllocation" for c in at.node.kubelet.calls))
        at.write("slow", {"main": 4}, at.promise(2))
        pod = await admitting
        assert pod.phase == "Running", pod.message
        assert at.told(pod) == 2


@dialects
async def test_a_card_that_is_promised_twice_is_not_given_twice(dialect: Dialect, kubelet: Kubelet, kubelet_root: Path):
    async with desk(dialect, kubelet, kubelet_root) as at:
        first = await at.bind("first", {"main": 12}, 1)
        second = await at.bind("second", {"main": 12}, 1)
        assert first.phase == "Running"
        assert second.phase == "Failed"
        assert "has 16, and pods hold 12 of them" in second.message
        at.set_phase("first", "Succeeded")
        await at.end(first)
        assert at.told(await at.bind("third", {"main": 12}, 1)) == 1


@dialects
async def test_a_daemon_that_starts_anew_knows_who_has_what(dialect: Dialect, kubelet: Kubelet, kubelet_root: Path):
    async with desk(dialect, kubelet, kubelet_root) as at:
        pods = [await at.bind(f"old{card}", {"main": 4}, card) for card in (1, 2)]
        await at.node.stop()
        at.node.facts.clear()
        at.node.start()
        await at.node.ready(dialect.resource, 64)
        fresh = await at.bind("new", {"main": 4}, 3)
        assert at.told(fresh) == 3
        for pod, card in zip([*pods, fresh], (1, 2, 3), strict=True):
            assert (await at.marked(pod.name))[dialect.device] == at.word(card)
        assert at.node.find("assignment-wrong") is None


@dialects
async def test_a_kubelet_that_restarts_keeps_every_pod_on_its_card(
    dialect: Dialect, kubelet: Kubelet, kubelet_root: Path
):
    async with desk(dialect, kubelet, kubelet_root) as at:
        pods = [await at.bind(f"p{card}", {"main": 7}, card) for card in range(4)]
        await at.node.kubelet.restart()
        await at.node.kubelet.wait_for_allocatable(dialect.resource, 64)
        for card, pod in enumerate(pods):
            assert pod.phase == "Running"
            assert at.told(pod) == card
        assert at.told(await at.bind("more", {"main": 7}, 2)) == 2


@dialects
async def test_pods_that_another_plugin_served_hold_slots_of_any_card(
    dialect: Dialect, kubelet: Kubelet, kubelet_root: Path
):
    """It looked at the number of slots only. What it gave away stays; the card counts, not the slots."""
    async with desk(dialect, kubelet, kubelet_root) as at:
        legacy = await at.bind("legacy", {"main": 14}, 0)
        await at.marked("legacy")
        await at.node.stop()
        at.write("legacy", {"main": 14}, at.promise(3) | {dialect.assigned: "true"}, phase="Running")
        at.node.start()
        await at.node.ready(dialect.resource, 64)
        assert at.lies_on(legacy) == {0}
        pod = await at.bind("beside", {"main": 10}, 0)
        assert pod.phase == "Running", pod.message
        assert at.told(pod) == 0
        full = await at.bind("full", {"main": 10}, 3)
        assert "has 16, and pods hold 14 of them" in full.message
        assert at.annotations("legacy")[dialect.device] == at.word(3)
