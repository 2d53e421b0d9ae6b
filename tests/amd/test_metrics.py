"""How busy AMD GPUs are, as the daemon's metrics show it: by the port for that alone."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from fairlead.testing import Kubelet
from tests.amd import machines, tree
from tests.system.rig import running
from tests.system.webclient import get

FIRST = "0000:19:00.0"
CONFIG = """
backends: [{{kind: amd, hostRoot: {root}}}]
rules: [{{resource: amd.com/gpu}}]
http: {{listen: "127.0.0.1:0", usage: true}}
"""


async def test_whole_gpus_are_in_the_metrics(kubelet: Kubelet, kubelet_root: Path):
    busy = machines.vegas().change(FIRST, busy="37", vram_used_bytes=2**30)
    tree.write(kubelet_root / "machine", busy)
    async with running(kubelet, kubelet_root, CONFIG.format(root=kubelet_root / "machine")) as node:
        await kubelet.wait_for_allocatable("amd.com/gpu", 2, 20)
        _, text = await get(node, "/metrics")
    values = {
        (sample.name, sample.labels["device"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in {"fairlead_device_utilization_ratio", "fairlead_device_memory_used_bytes"}
    }
    assert values == {
        ("fairlead_device_utilization_ratio", FIRST): 0.37,
        ("fairlead_device_utilization_ratio", "0000:1a:00.0"): 0,
        ("fairlead_device_memory_used_bytes", FIRST): 2**30,
        ("fairlead_device_memory_used_bytes", "0000:1a:00.0"): 0,
    }
