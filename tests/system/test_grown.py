"""Under another plugin's ids a unit may have to grow, and that is told: pods count in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml
from tests.apiserver.server import api_server
from tests.system.desk import DOSLAB, Desk, configure
from tests.system.rig import PATIENCE_S, running

from fairlead.app.preview import preview
from fairlead.cli import show
from fairlead.testing import Kubelet

FLEET = "description: large\ndevices: [{{count: {count}, vendor: nvidia, model: A100, memory: 80GiB}}]\n"


@pytest.mark.parametrize(("count", "grown"), [(1, []), (2, [("doslab.io/gpu-memory", 1, 2)])])
async def test_a_unit_that_grew_is_told(
    count: int, grown: list[tuple[str, int, int]], kubelet: Kubelet, kubelet_root: Path
):
    async with api_server() as server:
        config = configure(DOSLAB, kubelet, kubelet_root, server, FLEET.format(count=count))
        config["rules"][0]["memory"]["unit"] = "1MiB"
        async with running(kubelet, kubelet_root, yaml.safe_dump(config)) as node:
            await node.ready(DOSLAB.resource, 80 * 1024)  # both times: the second GPU makes the units larger
            node.daemon.refresh()
            told = [fact.keys for fact in node.daemon.journal.tail() if fact.kind == "unit-grown"]
            assert [(keys["resource"], keys["from_mib"], keys["to_mib"]) for keys in told] == grown


@pytest.mark.timeout(180)  # 80,000 units, four times, traced on a busy machine
async def test_a_unit_that_grew_stays_over_a_restart_with_a_card_less_while_a_pod_holds_some(
    kubelet: Kubelet, kubelet_root: Path
):
    """Else the card of 80 GiB would be 81,920 units of 1 MiB, of which a pod that has 60,000 MiB holds but 30,000."""
    async with api_server() as server:
        config = configure(DOSLAB, kubelet, kubelet_root, server, FLEET.format(count=2))
        config["rules"][0]["memory"]["unit"] = "1MiB"
        async with running(kubelet, kubelet_root, yaml.safe_dump(config)) as node:
            await node.ready(DOSLAB.resource, 80 * 1024)
            desk = Desk(DOSLAB, node, server)
            first = await desk.bind("first", {"main": 30_000}, 0)
            assert (first.phase, desk.lies_on(first)) == ("Running", {0})
            await node.stop()

            (kubelet_root / "fleet.yaml").write_text(FLEET.format(count=1))
            node.start()
            await node.ready(DOSLAB.resource, 40 * 1024)  # of the one card, still 2 MiB each
            kept = await node.until_fact("unit-kept", resource=DOSLAB.resource)
            assert (kept.keys["from_mib"], kept.keys["to_mib"]) == (1, 2)
            stays = "a unit stays 2MiB and does not become 1MiB: pods hold units of it. Drain the node"
            async with asyncio.timeout(PATIENCE_S):  # a kubelet that is busy says only later who holds what
                while stays not in show.status(node.status()):  # noqa: ASYNC110 - no event tells it
                    await asyncio.sleep(0.05)

            second = await desk.bind("second", {"main": 50_000}, 0)
            assert second.phase == "Failed"
            fits = await desk.bind("fits", {"main": 10_000}, 0)
            assert fits.phase == "Running"
            planned = await preview(node.load(), node.daemon.engine.inventory)
            assert [(made.unit_bytes >> 20, made.wanted_unit_bytes >> 20) for made in planned.resources] == [(2, 1)]

            await desk.end(first)
            await desk.end(fits)
            await node.stop()
            node.start()
            await node.ready(DOSLAB.resource, 80 * 1024)  # drained: 1 MiB, as theirs
