"""AMD GPUs under the whole daemon: names by how they are cut, cutting anew, faults by cause; nothing restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.amd import machines
from tests.amd.exporter import exporter
from tests.amd.tree import scratch, write
from tests.system.rig import PATIENCE_S, Node, running

from fairlead.testing import Kubelet

CONFIG = """
backends:
  - kind: amd
    hostRoot: {root}
    poll: 1s
    health: {{exporter: {root}/exporter.sock}}
rules:
  - resource: amd.com/{{profile}}
    match: {{attributes: {{profile: "*"}}}}
  - resource: amd.com/gpu
health: {{probeInterval: 20ms, hold: 20ms, probation: 20ms, cleanProbes: 1, suspect: 60s}}
"""
WHOLE = replace(machines.mi300x("SPX"), gpus=machines.mi300x("SPX").gpus[:2])
FIRST, SECOND = (gpu.address for gpu in WHOLE.gpus)
CUT = WHOLE.change(SECOND, compute="CPX", memory="NPS4", parts=8, simds=152, bank_bytes=(24 * machines.GIB,) * 8)
SPX, CPX = "amd.com/spx_nps1", "amd.com/cpx_nps4"


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as directory:
        yield directory


async def offers(node: Node, **counts: int) -> None:
    for profile, count in counts.items():
        await node.kubelet.wait_for_allocatable(f"amd.com/{profile}", count, PATIENCE_S)


async def test_a_gpu_is_cut_anew_while_a_pod_has_the_other(kubelet: Kubelet, kubelet_root: Path, root: Path):
    write(root, WHOLE)
    async with running(kubelet, kubelet_root, CONFIG.format(root=root)) as node:
        await offers(node, spx_nps1=2)
        await kubelet.run_pod("whole", {"main": {SPX: 1}})
        assert kubelet.allocated(SPX) == {FIRST}
        write(root, CUT)
        await offers(node, cpx_nps4=8, spx_nps1=1)
        pod = await kubelet.run_pod("parts", {"main": {CPX: 2}})
        nodes = pod.containers["main"].nodes
        assert len(nodes) == 5
        assert "/dev/kfd" in nodes
        assert kubelet.allocated(SPX) == {FIRST}
        await node.until(lambda: len([fact for fact in node.facts if fact.kind == "device-found"]) == 9)


async def test_a_driver_that_comes_late_and_goes_again(kubelet: Kubelet, kubelet_root: Path, root: Path):
    async with running(kubelet, kubelet_root, CONFIG.format(root=root)) as node:
        await node.until_fact("scan-failed")
        write(root, WHOLE)
        await offers(node, spx_nps1=2)
        write(root, replace(WHOLE, driver=False))
        await offers(node, spx_nps1=0)
        assert kubelet.node().capacity[SPX] == 2
        write(root, WHOLE)
        await offers(node, spx_nps1=2)


async def test_the_exporter_withdraws_one_gpu_and_gives_it_back(kubelet: Kubelet, kubelet_root: Path, root: Path):
    write(root, WHOLE)
    async with running(kubelet, kubelet_root, CONFIG.format(root=root)) as node:
        await offers(node, spx_nps1=2)
        async with exporter(root / "exporter.sock", [(SECOND, "unhealthy"), (FIRST, "healthy")]):
            await offers(node, spx_nps1=1)
            assert kubelet.devices(SPX)[FIRST] == "Healthy"
        async with exporter(root / "exporter.sock", [(SECOND, "healthy")]):
            await offers(node, spx_nps1=2)


async def test_a_gpu_that_is_cut_anew_while_an_idle_pod_holds_it_is_not_given_twice(
    kubelet: Kubelet, kubelet_root: Path, root: Path
):
    """The kernel cuts a GPU that no process has open. Its first partition has the id of the GPU that the pod has."""
    write(root, WHOLE)
    async with running(kubelet, kubelet_root, CONFIG.format(root=root)) as node:
        await offers(node, spx_nps1=2)
        await kubelet.run_pod("whole", {"main": {SPX: 2}})
        write(root, CUT)
        await node.until(lambda: CPX in kubelet.node().capacity and kubelet.node().capacity[CPX] == 8)
        assert kubelet.devices(CPX)[SECOND] == "Unhealthy"
        await offers(node, cpx_nps4=7)
