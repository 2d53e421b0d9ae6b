"""Devices that are offered whole and shared at once, limits per container, names after devices, and their sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.system.rig import GPU, PATIENCE_S, Node, running

from fairlead.model.errors import BackendError
from fairlead.testing import Kubelet

SHARED = "nvidia.com/gpu.shared"
TWOFOLD = """
backends:
  - {kind: sim, fleet: dgx1v}
rules:
  - resource: nvidia.com/gpu
    also: [{resource: nvidia.com/gpu.shared, replicas: 4, perContainer: 1}]
"""


async def test_a_pod_with_a_whole_device_keeps_its_shares_away_and_the_other_way_round(
    kubelet: Kubelet, kubelet_root: Path
):
    async with running(kubelet, kubelet_root, TWOFOLD) as node:
        await node.ready(GPU, 8)
        await node.ready(SHARED, 32)
        whole = await node.kubelet.run_pod("whole", {"main": {GPU: 1}})
        await node.kubelet.wait_for_allocatable(SHARED, 28)
        shared = await node.kubelet.run_pod("shared", {"main": {SHARED: 1}})
        await node.kubelet.wait_for_allocatable(GPU, 7)
        (taken,), (share,) = whole.containers["main"].devices[GPU], shared.containers["main"].devices[SHARED]
        assert share.partition("::")[0] != taken


async def test_one_container_gets_no_more_shares_than_the_rule_allows(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, TWOFOLD) as node:
        await node.ready(SHARED, 32)
        pod = await node.kubelet.run_pod("greedy", {"main": {SHARED: 2}})
        assert pod.phase == "Failed"
        assert "one container may have 1 of it, not 2" in pod.message


async def test_the_socket_is_called_as_configured(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, start=False) as node:
        node.write(node.config.read_text().replace("kubelet: {", 'kubelet: {socketName: "nvidia-{name}.sock", '))
        node.start()
        await node.ready()
        assert (node.kubelet.plugin_dir / "nvidia-gpu.sock").is_socket()


async def test_a_daemon_that_needs_its_devices_ends_when_the_first_scan_fails(kubelet: Kubelet, kubelet_root: Path):
    node = Node(
        kubelet,
        kubelet_root / "fairlead.yaml",
        "backends: [{kind: sim, fleet: h100x8}]\nscan: {required: true}\nrules: [{resource: a.b/c}]\n",
    )
    node.start({"broken": _Broken()})
    assert node._task is not None
    with pytest.raises(BackendError, match="backend broken: no driver"):
        await asyncio.wait_for(node._task, PATIENCE_S)


class _Broken:
    name = "broken"

    async def discover(self):
        raise BackendError("no driver")
