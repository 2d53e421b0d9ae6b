"""`fairlead plan` says which pods hold what a changed configuration would no longer offer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from tests.system.rig import GPU, SIM, Node, running

from fairlead.cli.commands import cli
from fairlead.testing import Kubelet

OTHER = SIM.replace("nvidia.com/gpu", "a.example/other")
FEWER = SIM.replace("  - resource: nvidia.com/gpu", "  - {match: {index: [6, 7]}, resource: nvidia.com/gpu}")


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


async def plan(node: Node, text: str, **replaced: str) -> dict[str, Any]:
    """Of a changed file, which the daemon does not read."""
    changed = Node(node.kubelet, node.config.with_name("changed.yaml"), text)
    for old, new in replaced.items():
        await asyncio.to_thread(changed.config.write_text, changed.config.read_text().replace(old, new))
    answered = await asyncio.to_thread(run, "plan", "--config", str(changed.config), "--json")
    assert answered.exit_code == 0, answered.output
    drawn = await asyncio.to_thread(run, "plan", "--config", str(changed.config))
    found: dict[str, Any] = json.loads(answered.stdout)["holding"]
    return {**found, "drawn": drawn.stdout}


async def test_pods_whose_slots_an_edit_would_remove_are_named(kubelet: Kubelet, tmp_path: Path):
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        for name, count in (("train", 5), ("serve", 3)):
            await kubelet.run_pod(name, {"main": {GPU: count}})
        same = await plan(node, SIM)
        assert (same["stranded"], same["not_looked_at"]) == ([], "")
        assert "strands" not in same["drawn"]

        gone = await plan(node, OTHER)
        assert gone["stranded"] == [
            {"holder": "default/serve/main", "resource": GPU, "slots": 3},
            {"holder": "default/train/main", "resource": GPU, "slots": 5},
        ]
        assert "this configuration strands 2 pods" in gone["drawn"]

        fewer = await plan(node, FEWER)
        assert sum(row["slots"] for row in fewer["stranded"]) == 6


async def test_what_was_not_looked_at_is_said(kubelet: Kubelet, tmp_path: Path):
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        await kubelet.run_pod("train", {"main": {GPU: 8}})
        deaf = await plan(node, OTHER, **{"fl.sock": "none.sock"})
        assert deaf["stranded"] == []
        assert "were not looked at: no daemon answers on" in deaf["not_looked_at"]
        blind = await plan(node, OTHER, **{str(kubelet.podresources_socket): "/nowhere.sock"})
        assert blind["stranded"] == []
        assert "who holds what was not looked at: /nowhere.sock is not there" in blind["drawn"]
