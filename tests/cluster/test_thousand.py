"""A thousand nodes with eight GPUs each, kwok in place of kubelets, a true kube-scheduler, and our extender.

Every state that the API server has is judged: no device over-committed, annotations on bound pods and on no others. In
the end nothing waits that fits, and all is given back.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from fairlead.cluster.kinds import PODS
from tests.cluster.conftest import SMALL, THOUSAND
from tests.cluster.judge import GPUSHARE, NATIVE, Ledger
from tests.cluster.plane import Plane, pod
from tests.cluster.volumes import CLAIMS, STORAGE_CLASSES, claim, late_class, volume

pytestmark = pytest.mark.asyncio(loop_scope="module")
MEMORY = GPUSHARE.resource
ON_LARGE: dict[str, Any] = {"nodeSelector": {"pool": "large"}}
ON_SMALL: dict[str, Any] = {"nodeSelector": {"pool": "small"}}
SMALL_DEVICES = len(SMALL) * GPUSHARE.devices
ENDS = {"ends": "soon"}


@pytest.mark.parametrize("sizes", ["equal", "random"])
async def test_a_burst_is_packed_and_ends(thousand: Plane, crowd: Ledger, sizes: str):
    rng = random.Random(1)
    asked = [20 if sizes == "equal" else rng.randint(4, 40) for _ in range(600)]
    await thousand.create(
        PODS, [pod(f"p{place}", {MEMORY: one}, **ON_LARGE) for place, one in enumerate(asked)], "default"
    )
    await thousand.until(lambda: crowd.running() == 600, "600 pods run")
    ideal = sum(asked) / (GPUSHARE.devices * GPUSHARE.units)
    assert len(crowd.nodes_used()) <= 1.3 * ideal + 2


async def test_pods_that_wait_come_one_wave_after_the_other(thousand: Plane, crowd: Ledger):
    count = 4 * SMALL_DEVICES
    await thousand.create(
        PODS, [pod(f"p{number}", {MEMORY: 50}, ENDS, **ON_SMALL) for number in range(count)], "default"
    )
    await thousand.until(lambda: len(crowd.ended) == count, "all pods have run and ended", 400)


async def test_pods_that_are_deleted_while_they_wait_leave_nothing_behind(thousand: Plane, crowd: Ledger):
    await thousand.create(
        PODS, [pod(f"first{number}", {MEMORY: 50}, **ON_SMALL) for number in range(SMALL_DEVICES)], "default"
    )
    await thousand.until(lambda: crowd.running() == SMALL_DEVICES, "the small pool is full")
    waiting = [f"later{number}" for number in range(200)]
    await thousand.create(PODS, [pod(name, {MEMORY: 50}, **ON_SMALL) for name in waiting], "default")
    await thousand.delete(*waiting[::2], *(f"first{number}" for number in range(40)))
    await thousand.until(lambda: crowd.running("later") == 40, "40 of those that still wait have taken the room")
    assert len(crowd.pending()) == 60
    assert crowd.could_be_bound(SMALL) == []


async def test_pods_that_are_deleted_while_they_are_bound_leave_nothing_behind(thousand: Plane, crowd: Ledger):
    """Whatever the moment is: before filter, between filter and bind, after it."""
    rng = random.Random(3)

    async def come_and_go(number: int) -> None:
        await thousand.create(PODS, [pod(f"brief{number}", {MEMORY: 80}, **ON_SMALL)], "default")
        await asyncio.sleep(rng.random() / 5)
        await thousand.delete(f"brief{number}")

    for first in range(0, 240, 40):
        await asyncio.gather(*(come_and_go(number) for number in range(first, first + 40)))
    await thousand.create(
        PODS, [pod(f"stays{number}", {MEMORY: 80}, **ON_SMALL) for number in range(SMALL_DEVICES)], "default"
    )
    await thousand.until(lambda: crowd.running("stays") == SMALL_DEVICES, "every device has been given again")


async def test_room_is_kept_for_pods_whose_volumes_are_made_first(thousand: Plane, crowd: Ledger):
    """kube-scheduler binds them long after filter. Others come meanwhile, for which there is room by totals alone."""
    await thousand.create(STORAGE_CLASSES, [late_class()])
    late = SMALL_DEVICES // 2
    await thousand.create(CLAIMS, [claim(f"claim{number}") for number in range(late)], "default")
    await thousand.create(
        PODS,
        [pod(f"late{number}", {MEMORY: 50}, **ON_SMALL, **volume(f"claim{number}")) for number in range(late)],
        "default",
    )
    await thousand.create(
        PODS, [pod(f"quick{number}", {MEMORY: 50}, **ON_SMALL) for number in range(SMALL_DEVICES)], "default"
    )
    await thousand.until(lambda: crowd.running("late") == late, "the late pods run")
    await thousand.until(lambda: crowd.running("quick") == SMALL_DEVICES - late, "the others have the rest")


async def test_two_systems_share_the_nodes_and_not_their_devices(thousand: Plane, crowd: Ledger):
    rng = random.Random(4)
    made = []
    for number in range(450):
        limits = [{MEMORY: rng.randint(4, 40)}, {NATIVE.resource: rng.randint(4, 40)}]
        wants = [limits[0], limits[1], limits[0] | limits[1]][number % 3]
        made.append(pod(f"p{number}", wants, **ON_SMALL if number % 5 == 0 else ON_LARGE))
    await thousand.create(PODS, made, "default")
    await thousand.until(lambda: crowd.running() == 450, "450 pods of two systems run")


async def test_a_cluster_that_was_used_can_be_filled_to_the_last_device(thousand: Plane, crowd: Ledger):
    """If one unit of those before were still booked, one pod would wait. One more than fit waits, and says why."""
    limits = {MEMORY: GPUSHARE.devices * GPUSHARE.units}
    labels = {GPUSHARE.count: str(GPUSHARE.devices)}
    count = len(THOUSAND)
    await thousand.create(
        PODS, [pod(f"p{number}", limits, labels, **ON_LARGE) for number in range(count + 1)], "default"
    )
    await thousand.until(lambda: crowd.running() == count, "every node has its pod", 400)
    assert crowd.free(GPUSHARE, THOUSAND) == 0
    assert len(crowd.pending()) == 1
