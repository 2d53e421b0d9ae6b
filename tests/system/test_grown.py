"""Under another plugin's ids a unit may have to grow, and that is told: pods count in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml
from tests.apiserver.server import ApiServer, api_server
from tests.system.desk import DOSLAB, NODE, Desk, configure
from tests.system.rig import PATIENCE_S, Node, running
from tests.system.supply import put_node

from fairlead.app.preview import preview
from fairlead.cli import show
from fairlead.policy.offering.units import read_unit
from fairlead.testing import Kubelet

FLEET = "description: large\ndevices: [{{count: {count}, vendor: nvidia, model: A100, memory: 80GiB}}]\n"


async def until_status_says(node: Node, words: str) -> None:
    """A kubelet that is busy says only later who holds what."""
    async with asyncio.timeout(PATIENCE_S):
        while words not in show.status(node.status()):  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.05)


async def planned(node: Node) -> list[tuple[int, int]]:
    """MiB of a unit, and of the one that it would be, as `fairlead plan` says it."""
    offering = await preview(node.load(), node.daemon.engine.inventory)
    return [(made.unit_bytes >> 20, made.wanted_unit_bytes >> 20) for made in offering.resources]


async def until_inspected(node: Node, server: ApiServer, unit_mib: int) -> None:
    """As `fairlead inspect` reads it: by the node's annotation, for as many units as the kubelet counts."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            notes = server.store.get("nodes", NODE)["metadata"].get("annotations") or {}
            if read_unit(notes, DOSLAB.resource, len(node.kubelet.devices(DOSLAB.resource))) == unit_mib:
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("count", "slots", "grown"), [(1, 80 * 1024, []), (2, 2 * 640, [("doslab.io/gpu-memory", 1, 128)])]
)
async def test_a_unit_that_grew_is_told(
    count: int, slots: int, grown: list[tuple[str, int, int]], kubelet: Kubelet, kubelet_root: Path
):
    async with api_server() as server:
        config = configure(DOSLAB, kubelet, kubelet_root, server, FLEET.format(count=count))
        config["rules"][0]["memory"]["unit"] = "1MiB"
        async with running(kubelet, kubelet_root, yaml.safe_dump(config)) as node:
            await node.ready(DOSLAB.resource, slots)
            node.daemon.refresh()
            told = [fact.keys for fact in node.daemon.journal.tail() if fact.kind == "unit-grown"]
            assert [(keys["resource"], keys["from_mib"], keys["to_mib"]) for keys in told] == grown


@pytest.mark.timeout(180)  # 80,000 units at the end, traced on a busy machine
async def test_a_unit_that_grew_stays_over_a_restart_with_a_card_less_while_a_pod_holds_some(
    kubelet: Kubelet, kubelet_root: Path
):
    """Else the card of 80 GiB would be 81,920 units of 1 MiB, of which a pod that has 470 x 128 MiB holds but 470."""
    async with api_server() as server:
        config = configure(DOSLAB, kubelet, kubelet_root, server, FLEET.format(count=2))
        config["rules"][0]["memory"]["unit"] = "1MiB"
        async with running(kubelet, kubelet_root, yaml.safe_dump(config)) as node:
            await node.ready(DOSLAB.resource, 2 * 640)
            desk = Desk(DOSLAB, node, server)
            first = await desk.bind("first", {"main": 470}, 0)
            assert (first.phase, desk.lies_on(first)) == ("Running", {0})
            await node.stop()

            (kubelet_root / "fleet.yaml").write_text(FLEET.format(count=1))
            node.start()
            await node.ready(DOSLAB.resource, 640)  # of the one card, still 128 MiB each
            kept = await node.until_fact("unit-kept", resource=DOSLAB.resource)
            assert (kept.keys["from_mib"], kept.keys["to_mib"]) == (1, 128)
            await until_status_says(
                node, "a unit stays 128MiB and does not become 1MiB: pods hold units of it. Drain the node"
            )

            second = await desk.bind("second", {"main": 200}, 0)
            assert second.phase == "Failed"
            fits = await desk.bind("fits", {"main": 150}, 0)
            assert fits.phase == "Running"
            assert await planned(node) == [(128, 1)]

            await desk.end(first)
            await desk.end(fits)
            await node.stop()
            node.start()
            await node.ready(DOSLAB.resource, 80 * 1024)  # drained: 1 MiB, as theirs


@pytest.mark.timeout(180)  # 80,000 units, twice, traced on a busy machine
async def test_an_upgrade_keeps_the_unit_that_pods_hold_and_takes_the_one_that_the_kubelet_can_bear_when_they_end(
    kubelet: Kubelet, kubelet_root: Path
):
    """The version before grew a unit by the length of the list alone, as `maxStall: 0` does now."""
    async with api_server() as server:
        put_node(server)
        config = configure(DOSLAB, kubelet, kubelet_root, server, FLEET.format(count=2))
        config["rules"][0]["memory"] |= {"unit": "1MiB", "maxStall": 0}
        async with running(kubelet, kubelet_root, yaml.safe_dump(config)) as node:
            await node.ready(DOSLAB.resource, 80 * 1024)
            desk = Desk(DOSLAB, node, server)
            pod = await desk.bind("p", {"main": 5_120}, 0)
            assert pod.phase == "Running", pod.message
            await node.stop()

            del config["rules"][0]["memory"]["maxStall"]
            node.write(yaml.safe_dump(config))
            node.start()
            await node.ready(DOSLAB.resource, 80 * 1024)
            kept = await node.until_fact("unit-kept", resource=DOSLAB.resource)
            assert (kept.keys["from_mib"], kept.keys["to_mib"]) == (128, 2)
            await until_status_says(node, "a unit stays 2MiB and does not become 128MiB: pods hold units of it")
            assert await planned(node) == [(2, 128)]
            await until_inspected(node, server, 2)

            await desk.end(pod)
            await node.ready(DOSLAB.resource, 2 * 640)
            assert await planned(node) == [(128, 0)]
            await until_inspected(node, server, 128)
