"""A unit that is configured anew waits for pods, and comes when they have ended: without a restart of anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.system.rig import running

from fairlead.engine import units
from fairlead.fronts import holders
from fairlead.testing import Kubelet

MEMORY = "example.com/gpu-memory"
FLEET = "description: one card\ndevices: [{count: 1, vendor: nvidia, model: T4, memory: 16GiB}]\n"


def config(root: Path, unit: str) -> str:
    (root / "fleet.yaml").write_text(FLEET)
    rule = f"{{resource: {MEMORY}, memory: {{unit: {unit}, ids: 'x-{{index}}-{{n}}'}}}}"
    return f"backends: [{{kind: sim, fleet: {root}/fleet.yaml}}]\nrules: [{rule}]\n"


async def test_a_new_unit_comes_when_the_pods_are_gone_and_the_kubelet_has_written_it_down(
    kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(holders, "INTERVAL_S", 0.05)
    monkeypatch.setattr(units, "GRANT_S", 0.1)
    async with running(kubelet, kubelet_root, config(kubelet_root, "1GiB")) as node:
        await node.ready(MEMORY, 16)
        pod = await kubelet.run_pod("p", {"main": {MEMORY: 12}})
        node.write(config(kubelet_root, "2GiB"))
        node.daemon.reload()
        await node.until_fact("unit-kept", resource=MEMORY, from_mib=2048, to_mib=1024)
        assert kubelet.node().allocatable[MEMORY] == 16
        await kubelet.delete_pod(pod)
        await kubelet.wait_for_allocatable(MEMORY, 8, 15)
        again = await kubelet.run_pod("again", {"main": {MEMORY: 8}})
        assert again.containers["main"].env["FAIRLEAD_MEMORY_MIB_EXAMPLE_COM_GPU_MEMORY"] == str(16 * 1024)
