"""Who holds what is asked until it is known: a device must not be given away a second time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.system.rig import GPU, SIM, running

from fairlead.engine import listing as stock
from fairlead.fronts import holders
from fairlead.policy.offering.retain import retain
from fairlead.testing import Kubelet

SHARED = SIM.replace("resource: nvidia.com/gpu", "resource: nvidia.com/gpu\n    replicas: 2")


async def test_a_daemon_that_starts_while_the_kubelet_is_away_learns_later_who_holds_what(
    kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(holders, "INTERVAL_S", 0.02)
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


async def test_without_pod_resources_slots_leave_when_the_kubelets_checkpoint_shows_them_free(
    kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(holders, "INTERVAL_S", 0.02)
    monkeypatch.setattr(stock, "retain", partial(retain, hold_s=0.0))
    nowhere = kubelet_root / "pod-resources-not-mounted/kubelet.sock"
    places = f"{{directory: {kubelet.plugin_dir}, podResources: {nowhere}}}"
    text = f"{SIM}\nkubelet: {places}\nstatus: {{socket: ''}}\n"
    async with running(kubelet, kubelet_root, text) as node:
        await node.ready()
        told = await node.until_fact("holders-unknown")
        assert f"{nowhere.parent} is not there" in str(told.keys["reason"])
        assert "set kubelet.podResources (--pod-resources)" in node.status().holders_problem
        pod = await kubelet.run_pod("holds", {"main": {GPU: 1}})
        (held,) = pod.containers["main"].devices[GPU]
        free = next(one for one in node.ids() if one != held)
        await node.steer(do="unplug", device=free)
        await node.steer(do="unplug", device=held)
        await kubelet.wait_for(lambda: free not in kubelet.devices(GPU), 30.0)
        assert kubelet.devices(GPU)[held] == "Unhealthy"
        await kubelet.delete_pod(pod)
        # The kubelet forgets the pod at its next allocation.
        other = await kubelet.run_pod("next", {"main": {GPU: 1}})
        await kubelet.wait_for(lambda: held not in kubelet.devices(GPU), 30.0)
        assert kubelet.devices(GPU)[other.containers["main"].devices[GPU][0]] == "Healthy"
