"""What the extender binds, the daemon gives: from filter and bind to Allocate, in every dialect and natively."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.system.desk import DOSLAB, GEM, GPUSHARE, NODE, TOLD, VOLCANO, Desk, Dialect, desk
from tests.unit.scheduler import rig
from tests.unit.scheduler.rig import Rig

from fairlead.policy.pods.contract import KNOWN, Contract, native
from fairlead.testing import Kubelet, Pod

GUIDE = Path(__file__).parents[2] / "docs/guide/scheduler.md"
RESOURCE = "example.com/gpu-memory"
OURS = native(RESOURCE)


class Native(Dialect):
    """What the guide says that a node needs."""

    def mean(self) -> dict[str, Any]:
        blocks = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
        (config,) = (found for block in blocks if "rules" in (found := yaml.safe_load(block)))
        return {"kubelet": {}, **config}


NATIVE = Native("native", RESOURCE, OURS.device, by_id=False, time=OURS.time, assigned=OURS.assigned)
CONTRACTS: dict[str, Contract] = {"native": OURS, **{name: contracts[0] for name, contracts in KNOWN.items()}}


@asynccontextmanager
async def both(dialect: Dialect, kubelet: Kubelet, root: Path) -> AsyncIterator[tuple[Desk, Rig]]:
    """A node with its daemon, and an extender that knows what the daemon tells of its devices."""
    async with (
        desk(dialect, kubelet, root) as at,
        rig.running(at.server, contract=CONTRACTS[dialect.name]) as scheduler,
    ):
        node = at.server.store.get("nodes", NODE)
        amounts = {dialect.resource: str(4 * 16)}  # as the kubelet counts the daemon's list
        status = {part: {**(node["status"].get(part) or {}), **amounts} for part in ("capacity", "allocatable")}
        at.server.store.put("nodes", {**node, "status": status})

        def told() -> list[str]:
            room = scheduler.view.packings[0].nodes.get(NODE)
            return [device.id for device in room.devices] if room is not None else []

        await scheduler.until(lambda: told() == at.cards)
        yield at, scheduler


async def schedule(at: Desk, scheduler: Rig, name: str, *amounts: int, labels: dict[str, str] | None = None) -> Pod:
    """Asks the extender as kube-scheduler does, then the kubelet."""
    pod = rig.pod(name, *amounts, resource=at.dialect.resource, meta={"labels": labels or {}})
    await scheduler.seen(pod)
    assert (await scheduler.filter(pod, NODE)).node_names == [NODE]
    assert (await scheduler.bind(pod, NODE)).error == ""
    bound = at.server.store.get("pods", name, "default")
    if at.dialect is DOSLAB:  # its pod manager adds these when it sees the pod on its node
        meta = {**bound["metadata"], "annotations": {**bound["metadata"]["annotations"], **GEM}}
        at.server.store.put("pods", {**bound, "metadata": meta}, "default")
    return await at.admit(name, {f"c{place}": units for place, units in enumerate(amounts)})


def named(at: Desk, name: str) -> set[int]:
    """The cards that the pod's annotation names."""
    words = at.annotations(name)[at.dialect.device].split(",")
    return {card for card in range(4) if at.word(card) in words}


@pytest.mark.parametrize("dialect", [NATIVE, GPUSHARE, VOLCANO, DOSLAB], ids=lambda dialect: dialect.name)
async def test_each_container_gets_the_device_that_the_extender_chose(
    dialect: Dialect, kubelet: Kubelet, kubelet_root: Path
):
    async with both(dialect, kubelet, kubelet_root) as (at, scheduler):
        sizes = {"a": (10,), "b": (7,), "c": (6,), "d": (3, 4), "e": (16,), "f": (9,)}
        pods = {name: await schedule(at, scheduler, name, *amounts) for name, amounts in sizes.items()}
        for name, pod in pods.items():
            assert pod.phase == "Running", pod.message
            (card,) = named(at, name)
            for container in pod.containers:
                assert at.told(pod, container) == card
                assert at.lies_on(pod, container) == {card}
            await at.marked(name)
        # The tightest device each time.
        assert named(at, "a") == named(at, "c")
        room = scheduler.view.packings[0].nodes[NODE]
        assert sorted(room.used) == sorted(
            sum(sum(sizes[name]) for name in sizes if card in named(at, name)) for card in range(4)
        )
        assert max(room.used) <= 16


@pytest.mark.parametrize("dialect", [NATIVE, GPUSHARE], ids=lambda dialect: dialect.name)
async def test_a_pod_on_two_devices_gets_its_part_of_both(dialect: Dialect, kubelet: Kubelet, kubelet_root: Path):
    label = CONTRACTS[dialect.name].devices_label
    async with both(dialect, kubelet, kubelet_root) as (at, scheduler):
        await schedule(at, scheduler, "small", 4)
        pod = await schedule(at, scheduler, "wide", 24, labels={label: "2"})
        assert pod.phase == "Running", pod.message
        cards = named(at, "wide")
        assert len(cards) == 2
        assert at.lies_on(pod, "c0") == cards
        assert pod.containers["c0"].env[TOLD].split(",") == [at.cards[card] for card in sorted(cards)]
        await at.marked("wide")
