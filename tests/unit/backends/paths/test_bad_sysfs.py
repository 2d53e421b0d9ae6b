"""A sysfs that is missing, half-written, garbage, endless or a loop costs the one device, and no other."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.backends import sysfs
from tests.unit.backends.host import Host, backend, scan, see

from fairlead.backends.paths import found as found_module
from fairlead.backends.paths.found import MATCHES_MAX, Look
from fairlead.backends.paths.presets import options_of
from fairlead.backends.paths.scan import Scanner
from fairlead.kit import files, hostroot
from fairlead.kit.text import is_encodable
from fairlead.model.names import parse_slot_id

ENTRIES: list[dict[str, Any]] = [
    {"pci": {"vendor": "8086", "device": "0b30"}},
    {"rdma": {"per": "port"}},
    {"sysfs": {"class": ["tty", "video4linux", "macvtap"]}},
    {"sysfs": {"class": "drm", "together": True}, "name": "{name}-{serial}-{node}"},
]


def _whole(root: Path) -> Host:
    host = Host(root)
    (root / "dev").mkdir()
    for address in ("0000:01:00.0", "0000:02:00.0"):
        where = sysfs.function(host, address, driver="dfl-pci")
        sysfs.node(host, where, "drm", f"dri/card{address[6]}")
        sysfs.adapter(host, where, f"mlx5_{address[6]}", int(address[6]), {"1": "4: ACTIVE", "2": "1: DOWN"})
        tty = sysfs.usb(host, f"1-{address[6]}", serial=address)
        sysfs.node(host, f"{tty}/{tty[-3:]}:1.0/x", "tty", f"ttyUSB{address[6]}")
        sysfs.node(host, f"/sys/devices/virtual/net/tap{address[6]}", "macvtap", f"tap{address[6]}")
    return host


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """Made once: what an example breaks, it mends."""
    root = tmp_path_factory.mktemp("machine")
    return _whole(root)


Spoil = Callable[[Path], None]


@contextmanager
def _broken(path: Path, spoil: Spoil, aside: Path) -> Iterator[None]:
    path.rename(aside)
    try:
        spoil(path)
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        aside.rename(path)


def _remove(path: Path) -> None:
    """It is already gone."""


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _climb(path: Path) -> None:
    path.symlink_to("../" * 30 + "etc")


def _itself(path: Path) -> None:
    """A directory that holds itself, by a link."""
    path.mkdir()
    (path / "device").symlink_to(".")
    (path / "uevent").symlink_to("..")


def _text(content: bytes) -> Spoil:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


DAMAGE = st.one_of(
    st.sampled_from([_remove, os.mkfifo, _loop, _climb, _itself]),
    st.sampled_from(
        [b"", b"\n", b"\x00" * 64, b"-1", b"99999999999", b"9" * 200_000, b"DEVNAME=../../etc/shadow\n"]
    ).map(_text),
    st.binary(max_size=64).map(_text),
)


def _files(root: Path) -> list[Path]:
    return sorted(root.rglob("*"))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 10_000), DAMAGE), min_size=1, max_size=5))
def test_damage_never_ends_a_scan_and_what_is_found_can_be_offered(
    machine: Host, damage: list[tuple[int, Spoil]]
) -> None:
    with ExitStack() as mended:
        for turn, (number, spoil) in enumerate(damage):
            if files := _files(machine.root / "sys"):
                aside = machine.root.with_name(f"aside{turn}")
                mended.enter_context(_broken(files[number % len(files)], spoil, aside))
        scanner = Scanner(options_of({"devices": ENTRIES}).devices, machine)
        found = scanner.scan()
        ids = [one.device.id for one in found.devices]
        assert len(ids) == len(set(ids))
        for one in found.devices:
            parse_slot_id(one.device.id)
            assert is_encodable(repr(one.device))
            assert all(node.path.startswith("/dev/") and ".." not in node.path for node in one.device.nodes)
            assert all(0 <= node < 10_000 for node in one.device.numa_nodes)
        assert scanner.check({one.device.id: one for one in found.devices}).keys() == set(ids)
        assert scanner.scan() == found
        assert scanner.directories()


@settings(max_examples=60)
@given(st.integers(0, 10_000), DAMAGE)
def test_damage_to_one_device_leaves_the_others_as_they_are(machine: Host, number: int, spoil: Spoil) -> None:
    """Everything below the first PCI function is the first device's alone."""
    entries = options_of({"devices": ENTRIES[:2]}).devices
    before = {one.device.id: one.device for one in Scanner(entries, machine).scan().devices}
    others = {name: device for name, device in before.items() if not name.startswith("0000:01:00.0")}
    files = _files(machine.root / sysfs.BRIDGE[1:] / "0000:01:00.0")
    with _broken(files[number % len(files)], spoil, machine.root.with_name("aside")):
        after = {one.device.id: one.device for one in Scanner(entries, machine).scan().devices}
    assert others
    assert {name: after.get(name) for name in others} == others


async def test_without_sysfs_there_are_no_such_devices_and_paths_are_found(host: Host):
    host.put("/dev/zero0")
    assert list(await scan(backend(host, *ENTRIES, {"paths": ["/dev/zero*"]}))) == ["zero0"]


def _refusing(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, part: str, code: int) -> None:
    """A call of the system that fails for the paths with this part. Root may read everything: no mode would do."""
    call = getattr(module, name)

    def refuse(path: Any, *rest: Any, **more: Any) -> Any:
        if part in str(path):
            raise OSError(code, os.strerror(code), path)
        return call(path, *rest, **more)

    monkeypatch.setattr(module, name, refuse)


async def test_a_directory_that_may_not_be_read_is_named_and_the_others_serve(
    host: Host, monkeypatch: pytest.MonkeyPatch
):
    where = sysfs.function(host, "0000:01:00.0")
    sysfs.node(host, where, "drm", "dri/card0")
    _refusing(monkeypatch, os, "listdir", "/sys/bus/pci/devices", errno.EACCES)
    found = await see(backend(host, ENTRIES[0], ENTRIES[0], {"sysfs": {"class": "drm"}}))
    assert found == (["0000:01:00.0-drm"], ("/sys/bus/pci/devices cannot be read: Permission denied",))


async def test_a_directory_of_dev_that_may_not_be_read_is_named(host: Host, monkeypatch: pytest.MonkeyPatch):
    host.put("/dev/dri/card0")
    host.put("/dev/kvm")
    _refusing(monkeypatch, os, "listdir", "/dev/dri", errno.EACCES)
    problem = ("/dev/dri cannot be read: Permission denied",)
    bundle = {"name": "x", "groups": [{"paths": [{"path": "/dev/dri/*"}]}]}
    assert await see(backend(host, {"paths": ["/dev/dri/c*", "/dev/kv*"]})) == (["kvm"], problem)
    assert await see(backend(host, {"bundle": bundle})) == ([], problem)
    tree = {"tree": {"matches": [{"match": "^kvm$"}, {"match": "card"}]}}
    assert await see(backend(host, tree)) == (["kvm"], problem)


async def test_a_file_that_cannot_be_read_is_named_once(host: Host, monkeypatch: pytest.MonkeyPatch):
    for number in (1, 2):
        where = sysfs.function(host, f"0000:0{number}:00.0")
        sysfs.node(host, where, "drm", f"dri/card{number}")
    _refusing(monkeypatch, files, "read_once", "0000:02:00.0/uevent", errno.EIO)
    found = await see(backend(host, ENTRIES[0], ENTRIES[0]))
    assert found == (
        ["0000:01:00.0"],
        ("/sys/bus/pci/devices/0000:02:00.0/uevent cannot be read: Input/output error",),
    )


async def test_nodes_below_a_directory_that_cannot_be_read_are_named(host: Host, monkeypatch: pytest.MonkeyPatch):
    sysfs.node(host, sysfs.function(host, "0000:01:00.0"), "drm", "dri/card0")
    _refusing(monkeypatch, os, "scandir", "0000:01:00.0/drm", errno.EACCES)
    found = await see(backend(host, ENTRIES[0]))
    assert found == (["0000:01:00.0"], (f"{sysfs.BRIDGE}/0000:01:00.0/drm cannot be read: Permission denied",))


async def test_a_path_that_may_not_be_looked_at_is_named(host: Host, monkeypatch: pytest.MonkeyPatch):
    host.put("/dev/dri/card0")
    _refusing(monkeypatch, os, "lstat", "card0", errno.EACCES)
    assert await see(backend(host, {"paths": ["/dev/dri/*"]})) == (
        [],
        ("/dev/dri/card0 cannot be read: Permission denied",),
    )


async def test_what_is_below_a_directory_that_may_not_be_entered_is_named(host: Host, monkeypatch: pytest.MonkeyPatch):
    sysfs.function(host, "0000:01:00.0")
    for call in ("open", "readlink", "lstat"):
        _refusing(monkeypatch, os, call, "/sys/bus", errno.EACCES)
    assert await see(backend(host, ENTRIES[0])) == ([], ("/sys/bus/pci/devices cannot be read: Permission denied",))


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENOTDIR, errno.ENODEV])
async def test_what_leaves_during_a_look_is_not_named(host: Host, monkeypatch: pytest.MonkeyPatch, code: int):
    sysfs.function(host, "0000:01:00.0")
    with monkeypatch.context() as leaving:
        _refusing(leaving, os, "listdir", "/sys/bus/pci/devices", code)
        assert await see(backend(host, ENTRIES[0])) == ([], ())
    (host.root / sysfs.BRIDGE[1:] / "0000:01:00.0/uevent").unlink()
    assert await see(backend(host, ENTRIES[0])) == ([], ())


async def test_a_node_whose_name_leads_out_of_dev_is_named(host: Host):
    where = sysfs.node(host, sysfs.function(host, "0000:01:00.0"), "drm", "dri/card0")
    host.put(f"{where}/uevent", "MAJOR=226\nDEVNAME=../etc/shadow\n")
    names, (problem,) = await see(backend(host, {"sysfs": {"class": "drm"}}))
    why = "says DEVNAME=../etc/shadow, which is no path below /dev: it is left out"
    assert (names, problem) == ([], f"{where}/uevent {why}")


def test_a_glob_that_matches_ten_thousand_files_is_cut_with_a_message(host: Host, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Host, "names", lambda *_: [f"n{number}" for number in range(10_000)])
    look = Look(host)
    assert look.matches("/dev/n*") == [f"/dev/n{number}" for number in range(MATCHES_MAX)]
    assert look.problems == ["/dev/n* has 10,000 matches, and only the first 1,024 are used. Write a narrower pattern"]


async def test_what_is_cut_is_a_problem_of_the_scan_and_the_rest_serves(host: Host, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(found_module, "MATCHES_MAX", 2)
    for number in range(3):
        host.put(f"/dev/n{number}")
    host.put("/dev/zero0")
    paths = backend(host, {"paths": ["/dev/n*"]}, {"paths": ["/dev/zero*"]})
    found = await paths.discover()
    await paths.close()
    assert [device.id for device in found.devices] == ["n0", "n1", "zero0"]
    assert [problem.partition(",")[0] for problem in found.problems] == ["/dev/n* has 3 matches"]


async def test_a_glob_that_leads_through_too_much_is_named_and_the_others_serve(
    host: Host, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hostroot, "NAMES_MAX", 10)
    for number in range(4):
        host.put(f"/dev/a{number}/b0")
        host.put(f"/dev/a{number}/b1")
    host.put("/dev/zero0")
    paths = backend(host, {"paths": ["/dev/*/b*"]}, {"paths": ["/dev/zero*"]})
    found = await paths.discover()
    await paths.close()
    assert [device.id for device in found.devices] == ["zero0"]
    assert found.problems == ("/dev/*/b* leads through more than 10 names, so it finds nothing. Write a narrower one",)


def test_a_directory_of_sysfs_with_too_many_entries_is_cut_with_a_message(host: Host):
    for number in range(MATCHES_MAX + 1):
        host.put(f"/sys/class/tty/tty{number}", "")
    look = Look(host)
    assert len(look.names("/sys/class/tty")) == MATCHES_MAX
    assert look.problems[0].startswith("/sys/class/tty has 1,025 files, and only the first 1,024 are used.")


@given(st.data())
def test_links_lead_where_they_lead_without_memory(data: st.DataObject):
    """What is remembered during a look changes nothing of the answer."""
    names = ["a", "b", "c"]
    with tempfile.TemporaryDirectory() as home:
        root = Path(home)
        for name in names:
            (root / name).mkdir()
        for number in range(data.draw(st.integers(1, 6))):
            directory = data.draw(st.sampled_from(names))
            steps = data.draw(st.lists(st.sampled_from([*names, "..", ".", "l0", "l1", "l2"]), min_size=1, max_size=4))
            target = data.draw(st.sampled_from(["", "/"])) + "/".join(steps)
            link = root / directory / f"l{number}"
            link.symlink_to(target)
        host = Host(root)
        look = Look(host)
        for path in [f"/{one}/{two}/{three}" for one in names for two in ("l0", "l1", "a") for three in ("l2", "b")]:
            assert look.real(path) == host.real(path)


def test_a_long_chain_of_links_is_followed_or_given_up_and_never_raises(host: Host):
    deep = "/".join(["d"] * 30)
    (host.root / deep).mkdir(parents=True)
    for number in range(60):
        host.link(f"/{deep}/l{number}", f"/{deep}/l{number + 1}")
    host.put(f"/{deep}/l60", "char 1:3")
    look = Look(host)
    assert look.see(f"/{deep}/l0").kind == ""  # more links than the kernel follows
    assert look.see(f"/{deep}/l50").kind == "device"
