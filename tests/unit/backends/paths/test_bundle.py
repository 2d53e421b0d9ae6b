"""Groups of files and USB devices by the rules of squat's generic-device-plugin."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import FakeClock
from tests.unit.backends.host import Host, backend, probe, scan

from fairlead.backends.paths import goglob, open_backend
from fairlead.backends.paths.bundle import slot_ids
from fairlead.backends.paths.scan import Scanner
from fairlead.backends.paths.spec import Options
from fairlead.kit.decoding import convert
from fairlead.model.device import Device, DeviceNode
from fairlead.model.edits import Grant, Mount
from fairlead.model.errors import ConfigError
from fairlead.model.names import ResourceName, SlotId

ALL = ["device", "file", "directory", "socket"]


def entry(*groups: dict[str, Any], name: str = "serial") -> dict[str, Any]:
    return {"name": f"{name}-{{name}}", "allow": ALL, "bundle": {"name": name, "groups": list(groups)}}


async def find(host: Host, *groups: dict[str, Any]) -> list[Device]:
    return list((await scan(backend(host, entry(*groups)))).values())


def tty(host: Host, *numbers: int) -> None:
    for number in numbers:
        host.put(f"/dev/ttyUSB{number}", f"char 188:{number}")


def stick(host: Host, port: str, node: str, serial: str | None = "51", ids: str = "1050:0407") -> None:
    """A USB device in sysfs, and its node."""
    vendor, _, product = ids.partition(":")
    bus, number = node.split("/")
    files = {"idVendor": vendor, "idProduct": product, "busnum": str(int(bus)), "devnum": str(int(number))}
    for file, text in {**files, **({"serial": serial} if serial is not None else {})}.items():
        host.put(f"/sys/bus/usb/devices/{port}/{file}", f"{text}\n")
    host.put(f"/dev/bus/usb/{node}", "char 189:1")


YUBIKEY = {"usb": [{"vendor": "1050", "product": "0407"}]}


# --- The acceptance case of paths -------------------------------------------------------------------------------------


async def test_four_nodes_with_one_mount_path_are_four_devices_at_the_same_place(host: Host):
    tty(host, 0, 1, 2, 10)
    found = await find(host, {"paths": [{"path": "/dev/ttyUSB*", "mountPath": "/dev/ttyUSB0"}]})
    assert sorted(device.nodes[0].path for device in found) == [f"/dev/ttyUSB{number}" for number in (0, 1, 10, 2)]
    assert {device.nodes[0].container_path for device in found} == {"/dev/ttyUSB0"}


async def test_a_mount_path_that_ends_with_a_slash_keeps_the_name(host: Host):
    tty(host, 3)
    (device,) = await find(host, {"paths": [{"path": "/dev/ttyUSB*", "mountPath": "/dev/serial/"}]})
    assert device.nodes == (DeviceNode("/dev/ttyUSB3", "/dev/serial/ttyUSB3", "mrw"),)


@pytest.mark.parametrize(
    ("parts", "nodes"),
    [
        ([{"path": "/dev/ttyUSB0"}, {"path": "/dev/video0"}], None),
        ([{"path": f"/dev/{name}0", "optional": True} for name in ("ttyS", "ttyUSB", "ttyACM")], ["/dev/ttyUSB0"]),
        ([{"path": f"/dev/{name}0", "optional": True} for name in ("ttyS", "ttyACM")], None),
        ([{"path": "/dev/ttyUSB0", "optional": True}, {"path": "/dev/video0"}], None),
    ],
)
async def test_a_mandatory_path_empties_its_group_and_an_optional_one_drops_out(
    parts: list[Any], nodes: list[str] | None, host: Host
):
    tty(host, 0)
    found = await find(host, {"paths": parts})
    assert [[node.path for node in device.nodes] for device in found] == ([nodes] if nodes else [])


# --- Groups -----------------------------------------------------------------------------------------------------------


@given(st.tuples(*[st.integers(1, 5)] * 2), st.tuples(*[st.integers(1, 3)] * 2), st.integers(1, 3))
def test_globs_are_put_together_until_one_of_them_ends(many: tuple[int, int], limits: tuple[int, int], count: int):
    """Against a plain reading of the rule: each list repeated `limit` times, and no longer than the longest match."""
    with TemporaryDirectory() as root:
        host = Host(Path(root))
        lists = [[f"/dev/{name}{place}" for place in range(size)] for name, size in zip("ab", many, strict=True)]
        for path in (path for paths in lists for path in paths):
            host.put(path)
        parts = [{"path": f"/dev/{name}*", "limit": limit} for name, limit in zip("ab", limits, strict=True)]
        options = convert({"devices": [entry({"count": count, "paths": parts})]}, Options, "paths")
        found = [one.device for one in Scanner(options.devices, host).scan().devices]
    repeated = [paths * limit for paths, limit in zip(lists, limits, strict=True)]
    expected = list(zip(*repeated, strict=False))[: max(many)]
    texts = [f"{copy}{''.join(paths)}" for paths in expected for copy in range(count)]
    assert {slot for device in found for slot in device.slots} == {sha1(text.encode()).hexdigest() for text in texts}
    assert sorted(tuple(node.path for node in device.nodes) for device in found) == sorted(expected)


async def test_of_two_groups_with_one_file_the_later_one_says_what_a_container_gets(host: Host):
    tty(host, 0)
    path = {"path": "/dev/ttyUSB0"}
    (device,) = await find(host, {"count": 2, "paths": [path]}, {"paths": [{**path, "permissions": "r"}]})
    assert set(device.slots) == set(slot_ids(["/dev/ttyUSB0"], 2))
    assert device.nodes[0].permissions == "r"


async def test_a_mount_is_a_mount_and_may_be_read_only(host: Host):
    host.put("/dev/conf", "text")
    paths = backend(host, entry({"paths": [{"path": "/dev/conf", "type": "Mount", "readOnly": True}]}))
    (device,) = (await paths.discover()).devices
    edits = paths.edits(Grant(ResourceName("a.b/c"), (SlotId(device.slots[0]),), (device,)))
    assert (edits.nodes, edits.mounts) == ((), (Mount("/dev/conf", "/dev/conf", read_only=True),))
    assert await probe(paths, device) is None
    await paths.close()


async def test_a_file_that_is_no_device_is_unhealthy_unless_it_is_mounted(host: Host):
    host.put("/dev/conf", "text")
    paths = backend(host, entry({"paths": [{"path": "/dev/conf"}]}))
    (device,) = (await paths.discover()).devices
    cause = await probe(paths, device)
    assert cause is not None
    assert "/dev/conf is a file, not a device. Give it type: Mount" in cause.message
    await paths.close()


async def test_a_directory_of_nodes_is_handed_over_as_one(host: Host):
    host.put("/dev/snd/controlC0", "char 116:0")
    paths = backend(host, entry({"count": 10, "paths": [{"path": "/dev/snd"}]}))
    (device,) = (await paths.discover()).devices
    assert device.nodes == (DeviceNode("/dev/snd", "/dev/snd", "mrw"),)
    assert await probe(paths, device) is None
    await paths.close()


async def test_a_link_is_handed_over_by_its_own_name_which_stays_after_a_replug(host: Host):
    tty(host, 0, 1)
    host.link("/dev/serial/by-id/usb-A", "../../ttyUSB0")
    paths = backend(host, entry({"paths": [{"path": "/dev/serial/by-id/*"}]}))
    before = (await paths.discover()).devices
    host.drop("/dev/serial/by-id/usb-A")
    host.link("/dev/serial/by-id/usb-A", "../../ttyUSB1")
    assert (await paths.discover()).devices == before
    assert before[0].nodes == (DeviceNode("/dev/serial/by-id/usb-A", "/dev/serial/by-id/usb-A", "mrw"),)
    await paths.close()


async def test_the_numa_node_of_the_pci_parent_is_listed(host: Host):
    tty(host, 0)
    host.put("/sys/devices/pci0000:00/0000:00:14.0/numa_node", "1")
    host.put("/sys/devices/pci0000:00/0000:00:14.0/usb1/ttyUSB0/dev", "188:0")
    host.link("/sys/dev/char/188:0/device", "/sys/devices/pci0000:00/0000:00:14.0/usb1/ttyUSB0")
    (device,) = await find(host, {"paths": [{"path": "/dev/ttyUSB*"}]})
    assert (device.numa_nodes, device.pci_address) == ((1,), "0000:00:14.0")


async def test_a_glob_that_matches_ten_thousand_files_is_cut_and_named(host: Host):
    (host.root / "dev/many").mkdir()
    for number in range(10_000):
        (host.root / f"dev/many/n{number}").symlink_to("../x")
    host.put("/dev/x")
    paths = backend(host, entry({"paths": [{"path": "/dev/many/*"}]}))
    found = await paths.discover()
    assert len(found.devices) == 4096
    assert found.problems == ("/dev/many/* matches 10,000 files, and the first 4,096 count",)
    await paths.close()


async def test_a_glob_that_leads_through_too_many_names_finds_nothing_and_is_named(
    host: Host, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(goglob, "NAMES_MAX", 3)
    for place in ("a/x", "a/y", "b/x", "b/y"):
        host.put(f"/dev/{place}")
    paths = backend(host, entry({"paths": [{"path": "/dev/*/*"}]}))
    found = await paths.discover()
    assert found.devices == ()
    assert found.problems == ("/dev/*/* leads through over 3 names, so it finds nothing",)
    await paths.close()


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ({"paths": [{"path": "dev/x"}]}, "groups[0].paths[0].path: 'dev/x' is not an absolute path"),
        ({"paths": [{"path": "/dev/[x"}]}, "is no pattern: a '[' is not closed"),
        ({"paths": [{"path": "/dev/x", "permissions": "rr"}]}, "is not made of r, w and m"),
        ({"paths": [{"path": "/dev/x", "limit": 0}]}, "limit: 0 is not a number"),
        ({"count": 70000, "paths": [{"path": "/dev/x"}]}, "count: 70000 is not a number from 1 to 65536"),
        ({"usb": [{"vendor": "zz", "product": "7523"}]}, "usb[0].vendor: 'zz' is not one to four hexadecimal digits"),
        ({"usb": [{"vendor": "1a86", "product": "7523"}], "paths": [{"path": "/x"}]}, "usb: beside paths"),
    ],
)
def test_options_that_do_not_fit_are_named(group: dict[str, Any], words: str):
    with pytest.raises(ConfigError) as refusal:
        open_backend({"devices": [entry(group)]}, FakeClock())
    assert words in str(refusal.value)


# --- USB --------------------------------------------------------------------------------------------------------------


async def test_all_usb_matches_of_a_group_are_one_device_whose_id_does_not_depend_on_the_order(host: Host):
    stick(host, "4-4", "004/025", "52")
    stick(host, "3-4", "003/022", "51")
    stick(host, "3-5", "003/023", "51", ids="1a86:7523")
    (device,) = await find(host, {"count": 2, **YUBIKEY})
    assert [node.path for node in device.nodes] == ["/dev/bus/usb/003/022", "/dev/bus/usb/004/025"]
    assert {node.permissions for node in device.nodes} == {"rw"}
    assert device.slots == slot_ids(["/dev/bus/usb/003/022", "/dev/bus/usb/004/025"], 2)


async def test_a_usb_device_that_is_plugged_in_again_is_the_same_device_with_another_node(host: Host):
    stick(host, "3-4", "003/022")
    paths = backend(host, entry(YUBIKEY))
    (before,) = (await paths.discover()).devices
    host.drop("/dev/bus/usb/003/022")
    cause = await probe(paths, before)
    assert cause is not None
    assert cause.message == "/dev/bus/usb/003/022 is missing"
    stick(host, "3-4", "003/023")
    (after,) = (await paths.discover()).devices
    assert after.id == before.id
    assert after.slots == slot_ids(["/dev/bus/usb/003/023"], 1) != before.slots
    assert await probe(paths, after) is None
    await paths.close()


@pytest.mark.parametrize("broken", [{"devnum": "zz"}, {"busnum": "9999"}, {"idProduct": "12345"}, {"idVendor": ""}])
async def test_a_usb_device_with_garbage_is_left_out_and_named_and_half_of_one_is_left_out(
    broken: dict[str, str], host: Host
):
    stick(host, "3-4", "003/022")
    for file, text in broken.items():
        host.put(f"/sys/bus/usb/devices/3-4/{file}", text)
    paths = backend(host, entry(YUBIKEY))
    found = await paths.discover()
    assert found.devices == ()
    (text,) = broken.values()
    assert [f"holds {text}" in problem for problem in found.problems] == ([True] if text else [])
    await paths.close()


async def test_each_usb_device_may_be_a_device_that_is_known_by_its_serial_wherever_it_is_plugged_in(host: Host):
    paths = backend(host, {"usb": {"vendor": "1050", "product": "0407"}})
    stick(host, "3-4", "003/022", "51")
    stick(host, "4-4", "004/025", None)
    (first, second) = (await paths.discover()).devices
    assert (first.id, first.nodes) == ("usb-1050-0407-51", (DeviceNode("/dev/bus/usb/003/022"),))
    assert second.id == "usb-1050-0407-4-4"  # without a serial it is known by its port
    for file in ("idVendor", "idProduct", "serial", "busnum", "devnum"):
        host.drop(f"/sys/bus/usb/devices/3-4/{file}")
    stick(host, "1-7", "001/009", "51")
    moved = {device.id: device for device in (await paths.discover()).devices}
    assert moved["usb-1050-0407-51"].nodes == (DeviceNode("/dev/bus/usb/001/009"),)
    await paths.close()


async def test_two_usb_devices_with_one_serial_are_two_devices_and_named(host: Host):
    stick(host, "3-4", "003/022", "51")
    stick(host, "4-4", "004/025", "51")
    paths = backend(host, {"usb": {"vendor": "1050", "product": "0407", "serial": "51"}})
    found = await paths.discover()
    assert len({device.id for device in found.devices}) == 2
    assert "4-4 has the serial number of 3-4" in found.problems[0]
    await paths.close()


@pytest.mark.parametrize("serial", ["0000000000", "0", "None", "N/A", "To Be Filled By O.E.M."])
async def test_usb_devices_with_a_serial_that_is_none_are_known_by_their_ports(host: Host, serial: str):
    stick(host, "3-4", "003/022", serial)
    stick(host, "4-4", "004/025", serial)
    usb = {"vendor": "1050", "product": "0407"}
    for wanted in (usb, {**usb, "serial": serial}):  # whoever writes it means it
        paths = backend(host, {"usb": wanted})
        found = await paths.discover()
        await paths.close()
        assert [device.id for device in found.devices] == ["usb-1050-0407-3-4", "usb-1050-0407-4-4"]
        assert [device.attributes["serial"] for device in found.devices] == ["", ""]
        assert found.problems == ()


async def test_a_group_takes_usb_devices_by_the_serial_that_they_say(host: Host):
    stick(host, "3-4", "003/022", "0000")
    (device,) = await find(host, {"usb": [{**YUBIKEY["usb"][0], "serial": "0000"}]})
    assert [node.path for node in device.nodes] == ["/dev/bus/usb/003/022"]
