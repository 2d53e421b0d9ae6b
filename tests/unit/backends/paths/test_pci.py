"""PCI functions as devices: which ones, under which id, with which nodes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.backends import sysfs
from tests.unit.backends.host import Host, backend, probe, scan, see

from fairlead.model.device import DeviceNode


def _paths(nodes: tuple[DeviceNode, ...]) -> list[str]:
    return [node.path for node in nodes]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"vendor": "10de"}, ["0000:01:00.0"]),
        ({"vendor": ["10de", "8086"], "class": "0302"}, ["0000:01:00.0"]),
        ({"class": "12"}, ["0000:02:00.0", "0000:02:00.1"]),
        ({"vendor": "8086", "device": "0b31"}, ["0000:02:00.1"]),
        ({"driver": "dfl-*"}, ["0000:02:00.0"]),
        ({"address": "*.1"}, ["0000:02:00.1"]),
        ({"vendor": "ffff"}, []),
    ],
)
async def test_functions_are_chosen_by_what_lspci_shows(host: Host, wanted: dict[str, Any], found: list[str]):
    sysfs.function(host, "0000:01:00.0", "10DE:2330", kind="030200")
    sysfs.function(host, "0000:02:00.0", "8086:0B30", driver="dfl-pci")
    sysfs.function(host, "0000:02:00.1", "8086:0B31")
    assert list(await scan(backend(host, {"pci": wanted}))) == found


async def test_a_function_has_every_node_that_its_driver_made_and_its_place(host: Host):
    where = sysfs.function(host, "0000:03:00.0", "8086:56C0", kind="038000", driver="i915", numa="1")
    sysfs.node(host, where, "drm", "dri/card0")
    sysfs.node(host, where, "drm", "dri/renderD128")
    sysfs.function(host, "0000:04:00.0")
    below = sysfs.node(host, f"{where}/0000:04:00.0", "other", "not-mine")  # a function behind a bridge
    assert below
    paths = backend(host, {"pci": {"vendor": "8086", "class": "0380"}, "permissions": "rwm"})
    device = (await scan(paths))["0000:03:00.0"]
    assert device.nodes == (
        DeviceNode("/dev/dri/card0", permissions="rwm"),
        DeviceNode("/dev/dri/renderD128", permissions="rwm"),
    )
    assert (device.pci_address, device.numa_nodes, device.model) == ("0000:03:00.0", (1,), "8086:56c0")


async def test_a_name_that_several_functions_have_is_not_the_whole_id(host: Host):
    for address in ("0000:01:00.0", "0000:02:00.0"):
        sysfs.function(host, address)
    wanted = {"pci": {"vendor": "8086", "nodes": []}}
    both = await scan(backend(host, {"name": "{vendor}-{device}", **wanted}))
    narrower = {"pci": {**wanted["pci"], "address": "0000:02:00.0"}}
    ((left, device),) = (await scan(backend(host, {"name": "{vendor}-{device}", **narrower}))).items()
    assert both[left] == device  # also for a daemon that never saw the other one
    assert all(await scan(backend(host, {"name": "{driver}", **wanted})))  # without a driver it is not empty


async def test_nodes_may_be_narrowed_by_name(host: Host):
    where = sysfs.function(host, "0000:03:00.0")
    for path in ("dri/card0", "dri/renderD128"):
        sysfs.node(host, where, "drm", path)
    wanted = {"pci": {"vendor": "8086", "nodes": "renderD*"}}
    assert _paths((await scan(backend(host, wanted)))["0000:03:00.0"].nodes) == ["/dev/dri/renderD128"]


async def test_a_function_of_vfio_is_its_iommu_group(host: Host):
    for function in ("0", "1"):
        where = sysfs.function(host, f"0000:05:00.{function}", "15B3:101E", driver="vfio-pci", numa="1")
        host.link(f"{where}/iommu_group", "../../../kernel/iommu_groups/42")
    (host.root / "sys/kernel/iommu_groups/42").mkdir(parents=True)
    host.put("/dev/vfio/vfio", "char 10:196")
    host.put("/dev/vfio/42", "char 241:0")
    found = await scan(backend(host, {"preset": "vfio"}))
    # The other function of the group goes to the same container: the group is what isolates.
    assert {name: _paths(device.nodes) for name, device in found.items()} == {
        "0000:05:00.0": ["/dev/vfio/42", "/dev/vfio/vfio"]
    }
    assert found["0000:05:00.0"].numa_nodes == (1,)
    host.drop("/dev/vfio/42")
    host.put("/dev/vfio/noiommu-42", "char 241:1")
    found = await scan(backend(host, {"preset": "vfio"}))
    assert _paths(found["0000:05:00.0"].nodes)[0] == "/dev/vfio/noiommu-42"


async def test_the_functions_of_a_board_may_be_one_device(host: Host):
    management = sysfs.function(host, "0000:65:00.0", "10EE:5000", driver="xclmgmt")
    user = sysfs.function(host, "0000:65:00.1", "10EE:5001", driver="xocl")
    sysfs.node(host, management, "xrt_mgmt", "xclmgmt25856")
    sysfs.node(host, user, "drm", "dri/renderD129")
    found = await scan(backend(host, {"preset": "xilinx"}))
    assert {name: _paths(device.nodes) for name, device in found.items()} == {
        "0000:65:00": ["/dev/xclmgmt25856", "/dev/dri/renderD129"]
    }


async def test_an_fpga_of_dfl_has_its_engine_and_its_ports(host: Host):
    where = sysfs.function(host, "0000:3b:00.0", driver="dfl-pci")
    sysfs.node(host, f"{where}/fpga_region/region0", "platform", "dfl-fme.0")
    sysfs.node(host, f"{where}/fpga_region/region0", "platform", "dfl-port.0")
    sysfs.node(host, where, "hwmon", "other")
    found = await scan(backend(host, {"preset": "dfl"}))
    assert _paths(found["0000:3b:00.0"].nodes) == ["/dev/dfl-fme.0", "/dev/dfl-port.0"]


async def test_a_function_without_a_node_is_unhealthy_and_says_why(host: Host):
    sysfs.function(host, "0000:06:00.0")
    sysfs.function(host, "0000:06:00.1", driver="qat")
    paths = backend(host, {"pci": {"vendor": "8086"}})
    devices = (await paths.discover()).devices
    assert [str(await probe(paths, device)) for device in devices] == [
        "no-node: 0000:06:00.0 has no device node: no driver is bound to it",
        "no-node: 0000:06:00.1 has no device node: its driver qat made none",
    ]
    await paths.close()
    assert await scan(backend(host, {"pci": {"vendor": "8086"}, "optional": True})) == {}


async def test_a_driver_that_comes_late_makes_the_device_whole(host: Host):
    where = sysfs.function(host, "0000:06:00.0")
    paths = backend(host, {"pci": {"vendor": "8086"}})
    (device,) = (await paths.discover()).devices
    sysfs.node(host, where, "qat", "qat_adf_ctl")
    (later,) = (await paths.discover()).devices
    assert (later.id, _paths(later.nodes)) == (device.id, ["/dev/qat_adf_ctl"])
    assert await probe(paths, later) is None
    await paths.close()


async def test_functions_that_need_no_node_may_be_counted(host: Host):
    sysfs.function(host, "0000:07:00.2", "15B3:1018", kind="020000", driver="mlx5_core")
    paths = backend(host, {"pci": {"vendor": "15b3", "nodes": []}})
    (device,) = (await paths.discover()).devices
    assert (device.nodes, await probe(paths, device)) == ((), None)
    await paths.close()


@pytest.mark.parametrize("wanted", [{"vendor": "8086"}, {"driver": "qat"}, {"class": "12"}, {"address": "0000:*"}])
@pytest.mark.parametrize("text", ["", "garbage", "PCI_ID=80:86\nPCI_CLASS=120000\nDRIVER=qat"])
async def test_a_function_that_does_not_say_what_it_is_is_named_and_the_others_serve(
    host: Host, wanted: dict[str, Any], text: str
):
    sysfs.function(host, "0000:06:00.0", driver="qat")
    host.put(f"{sysfs.function(host, '0000:06:00.1', driver='qat')}/uevent", text)
    names, problems = await see(backend(host, {"pci": wanted}))
    why = "does not say what the PCI function is, by PCI_ID and PCI_CLASS: it is left out"
    assert (names, problems) == (["0000:06:00.0"], (f"/sys/bus/pci/devices/0000:06:00.1/uevent {why}",))


async def test_without_its_class_a_function_is_left_out_only_where_that_is_asked_for(host: Host):
    where = sysfs.function(host, "0000:06:00.0")
    host.put(f"{where}/uevent", "PCI_ID=8086:0B30\nPCI_CLASS=-\n")
    assert await see(backend(host, {"pci": {"vendor": "8086"}})) == (["0000:06:00.0"], ())
    names, problems = await see(backend(host, {"pci": {"class": "00"}}))
    assert (names, len(problems)) == ([], 1)


async def test_a_function_at_another_address_may_hold_what_it_likes(host: Host):
    where = sysfs.function(host, "0000:06:00.0")
    host.put(f"{where}/uevent", "garbage")
    assert await see(backend(host, {"pci": {"address": "0000:07:*"}})) == ([], ())
