"""The chart's second scheduler beside a true API server with RBAC: it does all of its work with the rights it is given.

kube-scheduler and the extender are started with the commands, the configuration and the account that helm renders. The
API server's audit log says what they asked for.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.cluster.kinds import NODES, PODS
from tests.cluster.judge import GPUSHARE, Ledger
from tests.cluster.plane import PRIORITIES, Object, Plane, Settings, node, pod
from tests.cluster.release import Release
from tests.cluster.volumes import CLAIMS, STORAGE_CLASSES, chosen, claim, late_class, provide, volume

DEVICES, UNITS, MEMORY = GPUSHARE.devices, GPUSHARE.units, GPUSHARE.resource
NODE = "node-0"
# What Kubernetes' own roles are bound for: binds that wait for volumes, preemption, refusals, the election.
OF_KUBERNETES = {
    ("patch", "pods/status"),
    ("delete", "pods"),
    ("create", "events"),
    ("get", "configmaps"),
    ("watch", "persistentvolumes"),
}
# Used where a bind had no answer, or came before its pod was seen.
RARE = {("get", "pods")}


@pytest.fixture
def settings() -> Settings:
    return Settings(rbac=True)


@pytest.fixture
async def release(plane: Plane) -> Release:
    release = Release(plane)
    await release.install()
    await plane.create(NODES, [node(NODE, GPUSHARE.offer)])
    await plane.create(STORAGE_CLASSES, [late_class()])
    classes = [("low", 1), ("high", 1000)]
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    await plane.create(PRIORITIES, [{**kind, "metadata": {"name": name}, "value": value} for name, value in classes])
    await release.start()
    return release


async def test_it_does_all_of_its_work_with_the_rights_that_the_chart_gives_it(
    plane: Plane, release: Release, ledger: Ledger
):
    def of(name: str, units: int, **spec: Any) -> Object:
        return pod(name, {MEMORY: units}, schedulerName=release.name, **spec)

    small = [of(f"s{number}", UNITS // 2, priorityClassName="low") for number in range(2 * DEVICES)]
    await plane.create(PODS, small, "default")
    await plane.until(lambda: ledger.bound("s") == 2 * DEVICES, "the node is full")

    await plane.create(PODS, [of("big", UNITS, priorityClassName="high")], "default")
    await plane.until(lambda: ledger.bound("big") == 1, "pods of lower priority have left")
    assert ledger.bound("s") == 2 * DEVICES - 2

    await plane.delete("big")
    await plane.create(CLAIMS, [claim("data")], "default")
    await plane.create(PODS, [of("late", 50, **volume("data"))], "default")

    async def is_chosen() -> bool:
        return bool(await chosen(plane))

    await plane.until(is_chosen, "kube-scheduler has chosen a node for the volume")
    for one in await chosen(plane):
        await provide(plane, one)
    await plane.until(lambda: ledger.bound("late") == 1, "the pod with the volume is bound")

    await plane.delete(*(one["metadata"]["name"] for one in ledger.named()))
    await plane.until(lambda: not ledger.pods, "all pods are gone")
    # Room that only the extender knows of, and that ends without an event: the pod must be told.
    absent = pod("absent", {MEMORY: DEVICES * UNITS}, {GPUSHARE.count: str(DEVICES)})
    absent["metadata"]["uid"] = "of-no-pod"
    assert (await release.ask_filter(absent, [NODE]))["NodeNames"] == [NODE]
    await plane.create(PODS, [of("woken", 50)], "default")
    await plane.until(lambda: ledger.bound("woken") == 1, "it is told when there is room")
    assert "scheduler.fairlead/woken" in ledger.named("woken")[0]["metadata"]["annotations"]

    assert release.forbidden() == []
    for name in ("kube-scheduler", "extender"):
        assert "forbidden" not in plane.processes[name].tail(10_000).lower()
    assert release.granted() - release.used() <= RARE
    assert release.used() >= OF_KUBERNETES
    assert {("patch", "persistentvolumeclaims"), ("update", "persistentvolumeclaims")} & release.used()
