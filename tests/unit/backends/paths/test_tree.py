"""Files below a directory by expressions, as smarter-device-manager finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.clock import FakeClock
from tests.unit.backends.host import Host, backend, scan

from fairlead.backends.paths import open_backend, tree
from fairlead.backends.paths.found import Look
from fairlead.backends.paths.goglob import compile_part
from fairlead.model.device import Device, DeviceNode
from fairlead.model.errors import ConfigError


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host(tmp_path)
    for path in ("video0", "video1", "net/tun", "snd/controlC0", "ttyS0", "pts/0"):
        host.put(f"/dev/{path}")
    host.put("/dev/initctl", "text")
    host.link("/dev/loop", "/dev")
    return host


def entry(*matches: tuple[str, int], **more: Any) -> dict[str, Any]:
    allow = ["device", "directory"]
    return {"allow": allow, "tree": {"matches": [{"match": match, "count": count} for match, count in matches], **more}}


async def find(host: Host, *matches: tuple[str, int], **more: Any) -> dict[str, Device]:
    found = await scan(backend(host, entry(*matches, **more)))
    return {device.attributes["resource"]: device for device in found.values()}


async def test_each_file_that_fits_is_a_device_named_after_its_path(host: Host):
    found = await find(host, ("^video[0-9]*$", 2), ("^net/tun$", 1))
    assert {name: device.slots for name, device in found.items()} == {
        "net_tun": ("0",),
        "video0": ("0", "1"),
        "video1": ("0", "1"),
    }
    assert found["net_tun"].nodes == (DeviceNode("/dev/net/tun", "/dev/net/tun"),)


async def test_an_expression_without_anchors_is_found_anywhere(host: Host):
    assert set(await find(host, ("snd", 1))) == {"snd", "snd_controlC0"}


async def test_the_later_of_two_expressions_counts_and_zero_is_none(host: Host):
    assert (await find(host, ("^video0$", 2), ("video", 3)))["video0"].slots == ("0", "1", "2")
    assert await find(host, ("video", 2), ("video", 0)) == {}


async def test_a_plain_file_is_left_out_and_named_and_links_to_directories_are_not_followed(host: Host):
    paths = backend(host, entry((".*", 1)))
    found = await paths.discover()
    names = {device.attributes["resource"] for device in found.devices}
    assert names == {"video0", "video1", "net", "net_tun", "snd", "snd_controlC0", "ttyS0", "loop"}
    assert found.problems == ("/dev/initctl is a file, not a device; it is left out",)
    await paths.close()


async def test_a_link_by_id_is_a_resource_and_is_handed_over_by_its_own_name(host: Host):
    host.link("/dev/serial/by-id/usb-Modem_1", "../../ttyS0")
    (device,) = (await find(host, ("^serial/by-id/", 1))).values()
    assert device.attributes["resource"] == "serial_by-id_usb-Modem_1"
    assert device.nodes[0].path == "/dev/serial/by-id/usb-Modem_1"


async def test_a_file_that_comes_is_found_by_the_next_scan(host: Host):
    paths = backend(host, entry(("^ttyUSB", 1)))
    assert (await paths.discover()).devices == ()
    host.put("/dev/ttyUSB0")
    assert [device.id for device in (await paths.discover()).devices] == ["ttyUSB0"]
    await paths.close()


async def test_more_files_than_the_limit_are_named(host: Host, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tree, "FILES_MAX", 2)
    paths = backend(host, entry(("^(net|ttyS0)$", 1)))
    found = await paths.discover()
    assert len(found.devices) <= 2
    assert "/dev has more than 2 files; those after them are not seen" in found.problems
    await paths.close()


async def test_the_gpus_of_a_jetson_have_no_node_of_their_own(host: Host):
    host.put("/sys/devices/gpu.0/load", "1")
    host.put("/dev/nvidiactl")
    more = {"directory": "/sys/devices", "depth": 0}
    (device,) = (await find(host, (r"^gpu\.[0-9]+$", 1), nodes=[], **more)).values()
    assert (device.index, device.attributes["number"], device.nodes) == ("0", "0", ())
    nodes = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    (device,) = (await find(host, (r"^gpu\.[0-9]+$", 1), nodes=nodes, **more)).values()
    assert device.nodes == (DeviceNode("/dev/nvidiactl"),)


async def test_ids_may_be_characters(host: Host):
    assert (await find(host, ("^video0$", 2), characters=True))["video0"].slots == ("\x00", "\x01")


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"matches": []}, "matches: give 1 to 200"),
        ({"matches": [{"match": "("}]}, "tree.matches[0].match: '(' is no expression of Go: a '(' is not closed"),
        ({"matches": [{"match": "a", "count": -1}]}, "count: -1 is not a number from 0"),
        ({"matches": [{"match": "a"}], "depth": 11}, "depth: 11 is not a number"),
        ({"matches": [{"match": "a"}], "directory": "dev"}, "directory: 'dev' is not an absolute path"),
    ],
)
def test_options_that_do_not_fit_are_named(tree: dict[str, Any], words: str):
    with pytest.raises(ConfigError) as refusal:
        open_backend({"devices": [{"tree": tree}]}, FakeClock())
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("tty*", ["tty", "ttyS0"], ["xtty"]),
        ("*", [".hidden", ""], []),
        ("a?c", ["abc"], ["ac"]),
        ("[^ab]x", ["cx", "!x"], ["ax"]),
        ("[!a]", ["!", "a"], ["b"]),
        ("[a-c]", ["b"], ["d"]),
        (r"\*x", ["*x"], ["ax"]),
        (r"[\]]", ["]"], ["["]),
        ("*a*b*c", ["xaxbxc", "abcabc"], ["abcab", "cba"]),
    ],
)
def test_globs_are_those_of_go(pattern: str, yes: list[str], no: list[str]):
    compiled = compile_part(pattern)
    assert [name for name in yes if not compiled.fullmatch(name)] == []
    assert [name for name in no if compiled.fullmatch(name)] == []


@pytest.mark.parametrize("pattern", ["[", "[]", "[^]", "[a", "[a-]", "[-a]", "[c-a]", "x\\", "[\\"])
def test_a_glob_that_is_none_is_refused(pattern: str):
    with pytest.raises(ValueError, match=r"\w"):
        compile_part(pattern)


def test_what_an_expression_said_of_a_file_is_known_to_the_next_scan(host: Host, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    class Never:
        def search(self, path: str) -> bool:
            asked.append(path)
            return False

    monkeypatch.setattr(tree, "compiled", lambda _pattern: Never())
    monkeypatch.setattr(tree.Tree, "_walk", lambda *_: (f"file-{number}" for number in range(tree.FILES_MAX)))
    many = tree.Tree(matches=tuple(tree.Pattern(match=f"^{letter}$") for letter in "abcdefghijkl"))
    for _ in range(2):
        assert not list(many.find(Look(host)))
    assert len(asked) == 12 * tree.FILES_MAX
