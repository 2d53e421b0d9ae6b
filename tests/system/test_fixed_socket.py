"""A socket of a fixed name, as the sharing plugins have it: the next resource waits for its turn."""

from __future__ import annotations

from pathlib import Path

from tests.system.rig import GPU, SIM, running

from fairlead.testing import Kubelet

OTHER = "example.com/other"


async def test_a_renamed_resource_takes_the_socket_over(kubelet: Kubelet, kubelet_root: Path):
    places = f"directory: {kubelet.plugin_dir}, podResources: {kubelet.podresources_socket}"
    fixed = f"{SIM}\nkubelet: {{{places}, socketName: mine.sock}}\nstatus: {{socket: {kubelet_root}/fl.sock}}\n"
    async with running(kubelet, kubelet_root, fixed) as node:
        await node.ready()
        assert (kubelet.plugin_dir / "mine.sock").exists()
        node.write(fixed.replace(f"resource: {GPU}", f"resource: {OTHER}"))
        node.daemon.reload()
        await node.ready(OTHER)
        assert kubelet.node().allocatable[GPU] == 0
        assert (kubelet.plugin_dir / "mine.sock").exists()
        node.write(fixed)
        node.daemon.reload()
        await node.ready()
