"""Devices of a class of the kernel: cameras, serial ports, tap nodes; and which is which after a replug."""

from __future__ import annotations

import pytest
from tests.unit.backends import sysfs
from tests.unit.backends.host import Host, backend, probe, scan, see, watching

from fairlead.kit.clock import SystemClock
from fairlead.model.device import Device


def _nodes(device: Device) -> list[str]:
    return [node.path for node in device.nodes]


def _tty(host: Host, where: str, name: str, interface: str = "0") -> None:
    sysfs.node(host, f"{where}/{where.rpartition('/')[2]}:1.{interface}/{name}", "tty", name)


async def test_a_serial_port_is_known_by_its_serial_number_wherever_it_is_plugged_in(host: Host):
    _tty(host, sysfs.usb(host, "1-1", serial="FT0 1/X"), "ttyUSB0")
    paths = backend(host, {"preset": "serial"})
    (device,) = (await paths.discover()).devices
    assert (device.id, _nodes(device)) == ("usb-0403-6001-FT0_1_X-if00", ["/dev/ttyUSB0"])
    assert (device.model, device.vendor, device.numa_nodes) == ("UART", "0403", (1,))
    assert device.attributes == {
        "vendor": "0403",
        "product": "6001",
        "serial": "FT0_1_X",
        "class": "tty",
        "identity": "serial",
    }
    sysfs.unplug(host, "ttyUSB0")
    assert (await paths.discover()).devices == ()
    assert str(await probe(paths, device)) == "missing-path: /dev/ttyUSB0 is missing"
    _tty(host, sysfs.usb(host, "1-4.2", serial="FT0 1/X"), "ttyUSB7")
    (again,) = (await paths.discover()).devices
    assert (again.id, _nodes(again)) == (device.id, ["/dev/ttyUSB7"])
    await paths.close()
    assert list(await scan(backend(host, {"preset": "serial"}))) == [device.id]  # and after a restart


async def test_the_ports_of_one_converter_are_told_apart_by_interface(host: Host):
    where = sysfs.usb(host, "1-1")
    for number in range(3):
        _tty(host, where, f"ttyUSB{number}", str(number))
    found = await scan(backend(host, {"preset": "serial"}))
    assert list(found) == [f"usb-0403-6001-A1-if0{number}" for number in range(3)]


async def test_a_camera_has_all_its_nodes(host: Host):
    where = sysfs.usb(host, "1-2", "046d:082d", serial="C920", product="HD  Pro\tWebcam")
    for name in ("video10", "video9"):
        sysfs.node(host, f"{where}/1-2:1.0", "video4linux", name)
    (camera,) = (await scan(backend(host, {"preset": "camera"}))).values()
    assert (camera.id, camera.model) == ("usb-046d-082d-C920", "HD Pro Webcam")
    assert _nodes(camera) == ["/dev/video9", "/dev/video10"]
    each = await scan(backend(host, {"sysfs": {"class": "video4linux"}}))
    assert {name: _nodes(device) for name, device in each.items()} == {
        "usb-046d-082d-C920-if00": ["/dev/video9"],
        "usb-046d-082d-C920-if00-2": ["/dev/video10"],
    }


async def test_two_devices_with_one_serial_number_are_two_and_the_second_is_named(host: Host):
    _tty(host, sysfs.usb(host, "1-1"), "ttyUSB0")
    _tty(host, sysfs.usb(host, "1-2"), "ttyUSB1")
    paths = backend(host, {"preset": "serial"})
    found = await paths.discover()
    first, second = found.devices
    assert first.id == "usb-0403-6001-A1-if00"
    assert second.id.startswith(f"{first.id}-")
    (problem,) = found.problems
    assert problem.startswith("USB port 1-2 has the serial number of USB port 1-1, usb-0403-6001-A1-if00: ")
    sysfs.unplug(host, "ttyUSB0")
    alone = await paths.discover()
    assert [device.id for device in alone.devices] == [second.id]  # a pod may hold it under this id
    assert alone.problems == ()
    _tty(host, sysfs.usb(host, "1-7"), "ttyUSB9")
    both = (await paths.discover()).devices
    assert {_nodes(device)[0]: device.id for device in both} == {"/dev/ttyUSB1": second.id, "/dev/ttyUSB9": first.id}
    await paths.close()


async def test_of_two_devices_with_one_serial_number_the_first_port_has_it_whatever_their_nodes_are_called(host: Host):
    _tty(host, sysfs.usb(host, "1-2"), "ttyUSB0")
    _tty(host, sysfs.usb(host, "1-1"), "ttyUSB1")
    found = await scan(backend(host, {"preset": "serial"}))
    assert found["usb-0403-6001-A1-if00"].index == "ttyUSB1"


async def test_a_second_device_with_a_serial_number_never_takes_the_id_of_the_first(host: Host):
    _tty(host, sysfs.usb(host, "1-2"), "ttyUSB0")
    paths = backend(host, {"preset": "serial"})
    (first,) = (await paths.discover()).devices
    _tty(host, sysfs.usb(host, "1-1"), "ttyUSB1")  # at an earlier port
    both = (await paths.discover()).devices
    await paths.close()
    assert {device.index: device.id == first.id for device in both} == {"ttyUSB0": True, "ttyUSB1": False}


@pytest.mark.parametrize("serial", [None, "", "0000000000", "None", "To Be Filled By O.E.M."])
async def test_a_device_without_a_serial_number_is_known_by_its_port(host: Host, serial: str | None):
    _tty(host, sysfs.usb(host, "1-1.4", serial=serial), "ttyUSB0")
    (device,) = (await scan(backend(host, {"preset": "serial"}))).values()
    assert (device.id, device.attributes["identity"]) == ("usb-0403-6001-at-1-1.4-if00", "port")


async def test_devices_are_chosen_by_vendor_product_and_serial_number(host: Host):
    _tty(host, sysfs.usb(host, "1-1", "0403:6001", serial="A1"), "ttyUSB0")
    _tty(host, sysfs.usb(host, "1-2", "0403:6011", serial="B1"), "ttyUSB1")
    _tty(host, sysfs.usb(host, "1-3", "10c4:ea60", serial="B2"), "ttyUSB2")
    sysfs.node(host, "/sys/devices/virtual", "tty", "ttyUSB3")

    async def chosen(**wanted: str) -> list[str]:
        found = await scan(backend(host, {"sysfs": {"class": "tty", **wanted}}))
        return [device.index for device in found.values()]

    assert await chosen(vendor="0403") == ["ttyUSB0", "ttyUSB1"]
    assert await chosen(vendor="0403", product="6011") == ["ttyUSB1"]
    assert await chosen(serial="B*") == ["ttyUSB1", "ttyUSB2"]
    assert await chosen(node="*[03]") == ["ttyUSB0", "ttyUSB3"]


async def test_a_tap_node_is_known_by_its_interface(host: Host):
    sysfs.node(host, "/sys/devices/virtual/net/macvtap0", "macvtap", "tap7")
    assert list(await scan(backend(host, {"preset": "tap"}))) == ["net-macvtap0"]
    sysfs.unplug(host, "tap7")
    sysfs.node(host, "/sys/devices/virtual/net/macvtap0", "macvtap", "tap9")
    found = await scan(backend(host, {"preset": "tap"}))
    assert {name: _nodes(device) for name, device in found.items()} == {"net-macvtap0": ["/dev/tap9"]}


async def test_a_card_is_known_by_its_pci_address(host: Host):
    where = sysfs.function(host, "0000:03:00.0", driver="i915")
    sysfs.node(host, where, "drm", "dri/card1")
    sysfs.node(host, where, "drm", "dri/renderD129")
    found = await scan(backend(host, {"preset": "render"}))
    assert {name: _nodes(device) for name, device in found.items()} == {"0000:03:00.0-drm": ["/dev/dri/renderD129"]}


@pytest.mark.parametrize("preset", ["kvm", "fuse", "tun", "vhost-net", "sgx", "tpm"])
async def test_a_preset_for_one_node_offers_it_where_it_is(host: Host, preset: str):
    assert await scan(backend(host, {"preset": preset})) == {}
    paths = {"tun": "/dev/net/tun", "sgx": "/dev/sgx_enclave", "tpm": "/dev/tpmrm0"}
    path = paths.get(preset, f"/dev/{preset}")
    host.put(path)
    assert [_nodes(device) for device in (await scan(backend(host, {"preset": preset}))).values()] == [[path]]


async def test_what_stands_beside_a_preset_wins(host: Host):
    paths = backend(host, {"preset": "kvm", "optional": False, "permissions": "r", "vendor": "linux"})
    (device,) = (await paths.discover()).devices
    assert str(await probe(paths, device)) == "missing-path: /dev/kvm is missing"
    assert (device.vendor, device.nodes[0].permissions) == ("linux", "r")
    await paths.close()


async def test_a_device_that_is_plugged_in_is_seen_by_its_node_wherever_that_is(host: Host):
    sysfs.node(host, sysfs.function(host, "0000:00:1f.3"), "sound", "snd/controlC0")
    paths = backend(host, {"sysfs": {"class": "sound"}}, clock=SystemClock())
    async with watching(paths) as notes:
        sysfs.node(host, sysfs.function(host, "0000:01:00.0"), "sound", "mixer")  # in /dev itself
        await notes.wait_for("rescan")  # it watches now
        await paths.discover()
        notes.take()
        sysfs.node(host, sysfs.function(host, "0000:02:00.0"), "sound", "snd/controlC1")
        await notes.wait_for("rescan")
        assert [device.index for device in (await paths.discover()).devices] == [
            "mixer",
            "controlC0",
            "controlC1",
        ]


def _spoil(host: Host, where: str) -> str:
    """Takes its ids from a USB device or PCI function; what is told of it then."""
    for file in ("uevent", "idVendor", "idProduct"):
        host.put(f"{where}/{file}", "garbage")
    return f"{where}/uevent does not say vendor and product: "


@pytest.mark.parametrize("wanted", [{}, {"vendor": "0403"}, {"product": "6001"}, {"serial": "A*"}])
async def test_a_usb_device_that_does_not_say_its_ids_is_named_and_the_others_serve(host: Host, wanted: dict[str, str]):
    """Without them, it would be offered once more under another id."""
    _tty(host, sysfs.usb(host, "1-1", serial="A1"), "ttyUSB0")
    spoilt = sysfs.usb(host, "1-2", serial="A2")
    _tty(host, spoilt, "ttyUSB1")
    said = _spoil(host, spoilt)
    found = await see(backend(host, {"sysfs": {"class": "tty", **wanted}}))
    assert found == (["usb-0403-6001-A1-if00"], (f"{said}/dev/ttyUSB1 is left out",))


async def test_a_pci_function_that_does_not_say_its_ids_is_named_where_they_are_asked_for(host: Host):
    where = sysfs.function(host, "0000:03:00.0")
    sysfs.node(host, where, "drm", "dri/card0")
    said = _spoil(host, where)
    assert await see(backend(host, {"sysfs": {"class": "drm"}})) == (["0000:03:00.0-drm"], ())
    found = await see(backend(host, {"sysfs": {"class": "drm", "vendor": "8086"}}))
    assert found == ([], (f"{said}/dev/dri/card0 is left out",))


async def test_hardware_that_leaves_during_a_look_is_not_named(host: Host):
    where = sysfs.usb(host, "1-1")
    _tty(host, where, "ttyUSB0")
    for file in ("uevent", "idVendor", "idProduct"):
        host.drop(f"{where}/{file}")
    assert await see(backend(host, {"preset": "serial"})) == ([], ())
