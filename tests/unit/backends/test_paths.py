"""Files as devices: what is found at the paths that people name."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.clock import FakeClock
from tests.unit.backends.host import Host, backend, probe, scan

from fairlead.backends.paths import PathsBackend, open_backend
from fairlead.backends.paths.presets import options_of
from fairlead.backends.paths.scan import Scanner
from fairlead.model.device import Device, DeviceNode
from fairlead.model.edits import Grant, Mount
from fairlead.model.errors import ConfigError
from fairlead.model.names import ResourceName
from fairlead.model.ports import Backend, Closes, EditsGrants, ProbesAll, Watches


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "dev").mkdir()
    return Host(tmp_path)


async def test_it_finds_true_device_nodes_of_this_host() -> None:
    paths = open_backend({"devices": [{"paths": ["/dev/null", "/dev/zer*"], "vendor": "linux"}]}, FakeClock())
    found = (await paths.discover()).devices
    assert [(device.id, device.nodes) for device in found] == [
        ("null", (DeviceNode("/dev/null"),)),
        ("zero", (DeviceNode("/dev/zero"),)),
    ]
    assert await probe(paths, found[0]) is None
    await paths.close()


def test_it_has_the_ports_it_serves(host: Host) -> None:
    paths = backend(host)
    for port in (Backend, Watches, ProbesAll, EditsGrants, Closes):
        assert isinstance(paths, port)


async def test_each_match_of_a_wildcard_is_a_device_in_the_order_of_numbers(host: Host) -> None:
    for number in (0, 10, 2):
        host.put(f"/dev/ttyUSB{number}", f"char 188:{number}")
    entry = {"paths": ["/dev/ttyUSB*"], "permissions": "rwm", "model": "serial", "attributes": {"room": "b"}}
    found = await scan(backend(host, entry))
    assert list(found) == ["ttyUSB0", "ttyUSB2", "ttyUSB10"]
    device = found["ttyUSB2"]
    assert device.nodes == (DeviceNode("/dev/ttyUSB2", permissions="rwm"),)
    assert (device.model, device.attributes, device.index) == ("serial", {"room": "b"}, "ttyUSB2")


async def test_a_wildcard_takes_only_what_is_allowed(host: Host) -> None:
    host.put("/dev/dri/renderD128", "char 226:128")
    host.put("/dev/dri/by-path/x")
    host.put("/dev/dri/notes", "some text")
    assert list(await scan(backend(host, {"paths": ["/dev/dri/*"]}))) == ["renderD128"]


async def test_several_paths_may_be_one_device(host: Host) -> None:
    host.put("/dev/dsp0", "char 14:3")
    host.put("/dev/mixer0", "char 14:0")
    host.put("/dev/mixer1", "char 14:16")
    found = await scan(backend(host, {"name": "sound", "group": True, "paths": ["/dev/dsp0", "/dev/mixer*"]}))
    assert [node.path for node in found["sound"].nodes] == ["/dev/dsp0", "/dev/mixer0", "/dev/mixer1"]


async def test_a_link_is_followed_to_the_node_and_keeps_its_name_in_the_container(host: Host) -> None:
    host.put("/dev/ttyUSB7", "char 188:7")
    host.link("/dev/serial/by-id/usb-Modem_1", "../../ttyUSB7")
    found = await scan(backend(host, {"paths": ["/dev/serial/by-id/*"]}))
    assert found["usb-Modem_1"].nodes == (DeviceNode("/dev/ttyUSB7", "/dev/serial/by-id/usb-Modem_1"),)


async def test_one_thing_under_two_names_is_offered_once(host: Host) -> None:
    host.put("/dev/ttyUSB7", "char 188:7")
    host.link("/dev/modem", "ttyUSB7")
    assert list(await scan(backend(host, {"paths": ["/dev/modem"]}, {"paths": ["/dev/ttyUSB*"]}))) == ["modem"]


async def test_links_do_not_lead_out_of_the_root(host: Host, tmp_path: Path) -> None:
    host.put("/dev/inside", "char 1:5")
    host.link("/dev/absolute", "/dev/inside")
    host.link("/dev/climbs", "../../../../../../dev/inside")
    host.link("/dev/null-outside", "/dev/null")
    host.link("/dev/loop", "loop")
    found = await scan(backend(host, {"paths": ["/dev/absolute"]}, {"paths": ["/dev/n*", "/dev/l*"]}))
    assert [node.path for device in found.values() for node in device.nodes] == ["/dev/inside"]
    found = await scan(backend(host, {"paths": ["/dev/climbs"]}))
    assert found["climbs"].nodes[0].path == "/dev/inside"


async def test_files_directories_and_sockets_are_mounted_where_allowed(host: Host) -> None:
    host.put("/srv/model.bin", "weights")
    os.mknod(host.root / "srv/daemon.sock", stat.S_IFSOCK | 0o600)
    os.mkfifo(host.root / "srv/pipe")
    entry = {
        "name": "service",
        "group": True,
        "paths": ["/srv/*", "/srv"],
        "allow": ["file", "socket", "directory"],
        "permissions": "r",
        "mounts": [{"host": "/etc/service"}, {"host": "/a", "container": "/b", "readOnly": False}],
    }
    paths = backend(host, entry)
    device = (await scan(paths))["service"]
    assert device.nodes == ()
    edits = paths.edits(Grant(ResourceName("example.com/service"), (), (device,)))
    assert edits.mounts == (
        Mount("/etc/service", "/etc/service"),
        Mount("/a", "/b", read_only=False),
        Mount("/srv/daemon.sock", "/srv/daemon.sock"),
        Mount("/srv/model.bin", "/srv/model.bin"),
        Mount("/srv", "/srv"),
    )


async def test_a_container_gets_the_nodes_of_its_devices_each_once(host: Host) -> None:
    host.put("/dev/ctl")
    host.put("/dev/a", "char 9:1")
    host.put("/dev/b", "char 9:2")
    groups = [{"name": name, "group": True, "paths": ["/dev/ctl", f"/dev/{name}"]} for name in ("a", "b")]
    paths = backend(host, *groups)
    devices = tuple((await scan(paths)).values())
    edits = paths.edits(Grant(ResourceName("example.com/x"), (), devices))
    assert [node.path for node in edits.nodes] == ["/dev/ctl", "/dev/a", "/dev/b"]
    stranger = Device(devices[0].id, nodes=(DeviceNode("/dev/ctl"),))
    assert PathsBackend(Scanner((), host), FakeClock(), poll_s=30).edits(
        Grant(ResourceName("example.com/x"), (), (stranger,))
    ).nodes == (DeviceNode("/dev/ctl"),)


@pytest.mark.parametrize(
    "patterns",
    [["/dev/*/card"], ["/dev/a/card", "/dev/b/card"], ["/dev/a/card*", "/dev/b/c*"], ["/dev/a/*", "/dev/b/card"]],
)
async def test_where_names_may_collide_an_id_says_the_place_whatever_else_is_there(
    host: Host, patterns: list[str]
) -> None:
    """After a restart a path has the id it had before: a running pod holds it by that id."""
    host.put("/dev/a/card")
    host.put("/dev/b/card", "char 1:5")
    entry = {"paths": patterns, "optional": True}
    both = {device.nodes[0].path: device.id for device in (await backend(host, entry).discover()).devices}
    host.drop("/dev/a/card")
    (alone,) = (await backend(host, entry).discover()).devices
    assert alone.id == both["/dev/b/card"]
    assert alone.id.startswith("card-")


async def test_where_names_cannot_collide_an_id_is_the_plain_name(host: Host) -> None:
    host.put("/dev/a/card0")
    host.put("/dev/b/disk0", "char 1:5")
    found = (await backend(host, {"paths": ["/dev/a/card*", "/dev/b/disk*"]}).discover()).devices
    assert [device.id for device in found] == ["card0", "disk0"]


@pytest.mark.parametrize(
    ("entry", "paths"),
    [
        ({"name": "serial", "paths": ["/dev/ttyS*"]}, ["/dev/ttyS0", "/dev/ttyS1"]),
        ({"name": "{dir}", "paths": ["/dev/x/a", "/dev/x/b"], "optional": True}, ["/dev/x/a", "/dev/x/b"]),
        ({"name": "{dir}-{name}", "paths": ["/dev/*/x/n"]}, ["/dev/a/x/n", "/dev/b/x/n"]),
        ({"paths": ["/dev/a*"]}, ["/dev/a b", "/dev/a+b"]),
    ],
)
async def test_an_id_stays_with_its_path_when_another_of_the_same_name_leaves_and_the_daemon_restarts(
    host: Host, entry: dict[str, Any], paths: list[str]
) -> None:
    for minor, path in enumerate(paths):
        host.put(path, f"char 4:{minor}")
    both = await scan(backend(host, entry))
    host.drop(paths[0])
    ((left, device),) = (await scan(backend(host, entry))).items()
    assert both[left] == device


def test_two_groups_with_one_name_are_refused() -> None:
    group = {"name": "sound", "group": True, "paths": ["/dev/null"]}
    with pytest.raises(ConfigError, match=r"devices\[1\].name: 'sound' is the name of two groups"):
        options_of({"devices": [group, group]})


async def test_ids_may_be_patterns_and_always_fit(host: Host) -> None:
    host.put("/dev/bus one/" + "x" * 80)
    host.put("/dev/bus one/y", "char 1:5")
    found = list(await scan(backend(host, {"name": "{dir}/{name}", "paths": ["/dev/*/*"]})))
    assert found[1].startswith("bus-one-y-")  # "bus+one/y" would have the same name
    assert len(found[0]) == 63


async def test_the_place_of_a_device_comes_from_sysfs(host: Host) -> None:
    host.put("/dev/gpu", "char 226:128")
    host.put("/dev/usb", "char 188:0")
    host.put("/dev/disk", "block 8:0")
    host.put("/dev/nowhere", "char 1:9")
    host.put("/sys/devices/pci0000:00/0000:00:02.0/numa_node", "1\n")
    host.link("/sys/dev/char/226:128", "../../devices/pci0000:00/0000:00:02.0/drm/renderD128")
    host.link("/sys/devices/pci0000:00/0000:00:02.0/drm/renderD128/device", "../..")
    host.put("/sys/devices/pci0000:00/0000:00:14.0/numa_node", "0\n")
    host.link("/sys/dev/char/188:0/device", "../../../devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0")
    host.put("/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/bInterfaceNumber", "0")
    host.put("/sys/dev/block/8:0/unused", "")
    host.put("/sys/devices/pci0000:00/0000:00:17.0/numa_node", "-1\n")
    host.link("/sys/dev/block/8:0/device", "/sys/devices/pci0000:00/0000:00:17.0")
    found = await scan(backend(host, {"paths": ["/dev/*"]}))
    places = {name: (device.numa_nodes, device.pci_address) for name, device in found.items()}
    assert places == {
        "gpu": ((1,), "0000:00:02.0"),
        "usb": ((0,), "0000:00:14.0"),
        "disk": ((), "0000:00:17.0"),
        "nowhere": ((), ""),
    }
