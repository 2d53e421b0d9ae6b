"""Who holds what is asked until it is known: a device must not be given away a second time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.system.rig import GPU, SIM, running

from fairlead.app import daemon
from fairlead.testing import Kubelet

SHARED = SIM.replace("resource: nvidia.com/gpu", "resource: nvidia.com/gpu\n    replicas: 2")


async def test_a_daemon_that_starts_while_the_kubelet_is_away_learns_later_who_holds_what(
    kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(daemon, "HOLDERS_INTERVAL_S", 0.02)
    async with running(kubelet, kubelet_root, SHARED) as node:
        await node.ready(count=16)
        pod = await kubelet.run_pod("shares", {"main": {GPU: 1}})
        (slot,) = pod.containers["main"].devices[GPU]
        await node.stop()
        await kubelet.stop()
        # The same devices, no longer shared: what the pod has half of must not go to another as a whole.
        node.write(SIM)
        node.start()
        await node.until_fact("backoff")
        await kubelet.start()
        device = slot.partition("::")[0]
        await kubelet.wait_for(lambda: kubelet.devices(GPU).get(device) == "Unhealthy", 30.0)
        await kubelet.wait_for_allocatable(GPU, 7)
        await kubelet.delete_pod(pod)
        await kubelet.wait_for_allocatable(GPU, 8, 30.0)
