"""Pods through a true kube-scheduler and our extender, on few nodes. Judged by every state that the API server has."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import Any

from fairlead.cluster.kinds import PODS
from tests.cluster.judge import GPUSHARE, Ledger
from tests.cluster.plane import PRIORITIES, Object, Plane, pod

DEVICES, MEMORY = GPUSHARE.devices, GPUSHARE.resource


def names(count: int) -> list[str]:
    return [f"node-{number:05}" for number in range(count)]


async def test_the_one_node_of_two_thousand_that_has_room_is_found(plane: Plane, ledger: Ledger):
    *full, empty = names(2000)
    await plane.add_nodes([*full, empty])
    # Every device of the others has 50 of its 80 taken: by their totals, which are all that kube-scheduler knows, they
    # have room for four pods of 60.
    await plane.create(PODS, [_holder(name, 50) for name in full], "default")
    await plane.begin()
    await plane.create(PODS, [pod(f"big{number}", {MEMORY: 60}) for number in range(DEVICES + 1)], "default")
    await plane.until(lambda: ledger.bound("big") == DEVICES, "the one node has a pod on each device")
    assert {one["spec"].get("nodeName") for one in ledger.named("big")} == {empty, None}
    assert ledger.could_be_bound([*full, empty]) == []


async def test_nothing_is_lost_when_every_part_is_killed(plane: Plane, ledger: Ledger):
    await plane.add_nodes(names(20))
    await plane.begin()
    rng = random.Random(2)
    wanted = 0
    for name in ("extender", "kube-scheduler", "kube-apiserver", "extender"):
        more = [pod(f"{name}-{wanted + number}", {MEMORY: rng.randint(4, 40)}) for number in range(40)]
        wanted += len(more)
        creating = asyncio.create_task(_create_in_spite_of_all(plane, more))
        await asyncio.sleep(0.3)  # in the middle of it; whenever it is, the end must be the same
        plane.processes[name].end(signal.SIGKILL)
        plane.processes[name].start()
        await creating
    await plane.until(lambda: ledger.bound() == wanted, f"{wanted} pods are bound", 240)


async def test_pods_that_do_not_fit_wait_and_come_when_others_leave(plane: Plane, ledger: Ledger):
    await plane.add_nodes(names(2))
    await plane.begin()
    await plane.create(PODS, [pod(f"p{number}", {MEMORY: 50}) for number in range(20)], "default")
    await plane.until(lambda: ledger.bound() == 16, "16 pods are bound")
    assert ledger.free(GPUSHARE, names(2)) == 30
    leaving = [one["metadata"]["name"] for one in ledger.named() if one["spec"].get("nodeName")][:4]
    await plane.delete(*leaving)
    await plane.until(lambda: len(ledger.pods) == ledger.bound() == 16, "the others are bound")


async def test_preemption_frees_one_device_and_no_other(plane: Plane, ledger: Ledger):
    await plane.add_nodes(names(1))
    await plane.start_kwok()  # a pod that must go takes its time
    await plane.begin()
    classes = [("low", 1), ("high", 1000)]
    await plane.create(
        PRIORITIES,
        [
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
            for name, value in classes
        ],
    )
    low: dict[str, Any] = {"priorityClassName": "low", "terminationGracePeriodSeconds": 1}
    await plane.create(PODS, [pod(f"s{number}", {MEMORY: 40}, **low) for number in range(2 * DEVICES)], "default")
    await plane.until(lambda: ledger.running() == 2 * DEVICES, "the node is full")
    # The small pod would fit where the large one makes room.
    await plane.create(PODS, [pod("big", {MEMORY: 80}, priorityClassName="high")], "default")
    await plane.create(PODS, [pod("after", {MEMORY: 40}, priorityClassName="low")], "default")
    await plane.until(lambda: ledger.running("big") == 1, "the important pod runs")
    assert len(ledger.named("s")) == 2 * DEVICES - 2  # two pods had to go, those of one device
    assert ledger.bound("after") == 0


def _holder(name: str, units: int) -> Object:
    """A pod that was on a node before, with a part of each device."""
    one = pod(f"held-{name}", {MEMORY: DEVICES * units}, {GPUSHARE.count: str(DEVICES)}, nodeName=name)
    one["metadata"]["annotations"] = {GPUSHARE.index: ",".join(map(str, range(DEVICES)))}
    return one


async def _create_in_spite_of_all(plane: Plane, pods: list[Object]) -> None:
    """The API server may be away. What was created all the same is there already."""
    left = pods
    async with asyncio.timeout(120):
        while left:
            results = await asyncio.gather(
                *(plane.create(PODS, [one], "default") for one in left), return_exceptions=True
            )
            left = [one for one, result in zip(left, results, strict=True) if isinstance(result, BaseException)]
            if left:
                await asyncio.sleep(0.2)
