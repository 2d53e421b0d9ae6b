"""Under another plugin's ids a unit may have to grow, and that is told: pods count in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.apiserver.server import api_server
from tests.system.desk import DOSLAB, configure
from tests.system.rig import running

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
