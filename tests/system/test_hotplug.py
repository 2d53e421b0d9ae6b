"""A USB device is unplugged while a pod holds it, and comes back at another port under another node name."""

from __future__ import annotations

from pathlib import Path

from tests.system.rig import running
from tests.unit.backends import sysfs
from tests.unit.backends.host import Host

from fairlead.testing import Kubelet

SERIAL = "example.com/serial"


def _plug(host: Host, port: str, serial: str, name: str) -> None:
    where = sysfs.usb(host, port, serial=serial)
    sysfs.node(host, f"{where}/{port}:1.0/{name}", "tty", name)


async def test_a_replug_is_the_same_device_and_nothing_restarts(kubelet: Kubelet, kubelet_root: Path):
    host = Host(kubelet_root / "host")
    _plug(host, "1-1", "A", "ttyUSB0")
    _plug(host, "1-2", "B", "ttyUSB1")
    # Without root there are no device nodes: here they are files.
    entry = "{preset: serial, allow: [file]}"
    text = (
        f"backends: [{{kind: paths, hostRoot: '{host.root}', devices: [{entry}]}}]\nrules: [{{resource: {SERIAL}}}]\n"
    )
    async with running(kubelet, kubelet_root, text) as node:
        await kubelet.wait_for_allocatable(SERIAL, 2)
        pod = await kubelet.run_pod("holds", {"main": {SERIAL: 2}})
        held = {slot for grant in pod.containers["main"].devices.values() for slot in grant}
        assert held == {"usb-0403-6001-A-if00", "usb-0403-6001-B-if00"}
        assert [device.numa_nodes for device in node.daemon.engine.inventory.devices] == [(1,), (1,)]
        sysfs.unplug(host, "ttyUSB0")
        await kubelet.wait_for_allocatable(SERIAL, 1)
        assert kubelet.node().capacity[SERIAL] == 2  # listed, because a pod holds it
        _plug(host, "1-4.3", "A", "ttyUSB7")
        await kubelet.wait_for_allocatable(SERIAL, 2)
        (device,) = [one for one in node.daemon.engine.inventory.devices if one.id == "usb-0403-6001-A-if00"]
        assert device.index == "ttyUSB7"
        assert (pod.phase, kubelet.node().capacity[SERIAL]) == ("Running", 2)
        assert sum(call.method == "GetDevicePluginOptions" for call in kubelet.calls) == 1  # nothing restarts
