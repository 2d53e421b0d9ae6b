"""Gangs of kube-scheduler itself: it asks about all members of a group before it binds the first one.

The features are off by default in 1.36, and are switched on here.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead.cluster.kinds import PODS, Kind
from fairlead.scheduler.extender import EXPIRE_S
from fairlead.scheduler.view import TENTATIVE_S
from tests.cluster.judge import GPUSHARE, Ledger
from tests.cluster.plane import Object, Plane, Settings, pod
from tests.cluster.volumes import CLAIMS, STORAGE_CLASSES, chosen, claim, late_class, provide, volume

DEVICES, MEMORY = GPUSHARE.devices, GPUSHARE.resource
GROUPS = Kind("scheduling.k8s.io", "v1alpha2", "podgroups", namespaced=True)
SOON_S = 60.0  # on a busy machine; far less than room is kept for a pod that is bound late


@pytest.fixture
def settings() -> Settings:
    return Settings(gates="GenericWorkload=true,GangScheduling=true", apis="scheduling.k8s.io/v1alpha2=true")


def group(name: str, count: int) -> Object:
    spec = {"schedulingPolicy": {"gang": {"minCount": count}}}
    return {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def member(name: str, of: str, units: int, **spec: Any) -> Object:
    return pod(name, {MEMORY: units}, schedulingGroup={"podGroupName": of}, **spec)


async def test_room_is_kept_for_a_gang_that_is_bound_late(plane: Plane, ledger: Ledger):
    """Its volumes are made last. Others come meanwhile, for which there is room by totals alone."""
    await plane.add_nodes(["node-0", "node-1"])
    await plane.begin()
    await plane.create(STORAGE_CLASSES, [late_class()])
    await plane.create(GROUPS, [group("gang", DEVICES)], "default")
    await plane.create(CLAIMS, [claim(f"claim{number}") for number in range(DEVICES)], "default")
    late = [member(f"late{number}", "gang", 50, **volume(f"claim{number}")) for number in range(DEVICES)]
    await plane.create(PODS, late, "default")

    async def all_chosen() -> bool:
        return len(await chosen(plane)) == DEVICES

    await plane.until(all_chosen, "kube-scheduler has chosen a node for each member")
    await asyncio.sleep(TENTATIVE_S + 2 * EXPIRE_S)  # longer than room is kept for a pod that waits for nothing
    assert ledger.bound() == 0
    await plane.create(PODS, [pod(f"quick{number}", {MEMORY: 50}) for number in range(2 * DEVICES)], "default")
    await plane.until(lambda: ledger.bound("quick") == DEVICES, "the others have what the gang leaves")
    for one in await chosen(plane):
        await provide(plane, one)
    await plane.until(lambda: ledger.bound("late") == DEVICES, "every member is bound")
    assert ledger.bound("quick") == DEVICES
    assert await plane.metric('fairlead_scheduler_binds_total{result="no-room"}') == 0


@pytest.mark.parametrize("units", [50, 80], ids=["by single devices", "by totals"])
async def test_a_gang_that_does_not_fit_keeps_no_room_and_comes_when_there_is_some(
    plane: Plane, ledger: Ledger, units: int
):
    """By totals: kube-scheduler refuses the last member itself, and the extender is not asked about it."""
    await plane.add_nodes(["node-0"])
    await plane.begin()
    await plane.create(GROUPS, [group("gang", DEVICES + 1)], "default")
    await plane.create(PODS, [member(f"g{number}", "gang", units) for number in range(DEVICES + 1)], "default")
    await plane.until(lambda: sum(map(_was_refused, ledger.named("g"))) > DEVICES, "kube-scheduler has tried the gang")
    # From now on it tries it without a pause.
    await plane.create(PODS, [pod(f"single{number}", {MEMORY: units}) for number in range(DEVICES)], "default")
    await plane.until(lambda: ledger.bound("single") == DEVICES, "single pods have the room", SOON_S)
    assert ledger.bound("g") == 0
    await plane.add_nodes(["node-1"])
    await plane.delete("single0")
    await plane.until(lambda: ledger.bound("g") == DEVICES + 1, "the gang is bound", SOON_S)


def _was_refused(one: Object) -> bool:
    conditions = one["status"].get("conditions", ())
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)
