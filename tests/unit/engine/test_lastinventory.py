"""The last inventory: offered while a first scan is slow, and only where nothing speaks against it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.lastinventory import (
    CONFIRM_S,
    FILE_MAX_BYTES,
    MAX_AGE_S,
    VERSION,
    LastInventory,
    decode,
    fingerprint,
    node_number,
)
from fairlead.model.device import Device, DeviceNode
from fairlead.model.inventory import Findings, Links

BOOT = "4c1ff7c9-5a3e-4a0e-9d0a-0c5b7a1f2e11"
OPTIONS = {"gpu": {"kind": "nvidia", "mig": "mixed"}}
FOUND = Findings(
    (
        Device("a", index="0", memory_bytes=2**36, nodes=(DeviceNode("/dev/a"),), attributes={"k": "v"}, backend="gpu"),
        Device("b", index="1", numa_nodes=(1,), slots=("b-0", "b-1"), backend="gpu"),
    ),
    Links({("a", "b"): 7}),
)
NUMBERS = {"/dev/a": 5}


def open_last(path: Path, *, boot: str = BOOT, numbers: Any = None, options: Any = None) -> Any:
    last = LastInventory(path, boot, (NUMBERS if numbers is None else numbers).get)
    last.configure(OPTIONS if options is None else options)
    return last


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that a daemon wrote at 100 s after the boot."""
    file = tmp_path / ".fairlead.inventory"
    open_last(file).note("gpu", FOUND, 100.0, well=True)
    return file


def recalled(path: Path, now_s: float = 110.0, **how: Any) -> Any:
    """What a daemon that starts now would offer. The file stays, for the next look."""
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
    answer = open_last(path, **how).take(now_s)
    if content is not None and not path.exists():
        path.write_bytes(content)
        path.chmod(0o600)
    return answer


def test_what_a_scan_found_is_read_back_whole(path: Path):
    assert recalled(path) == ({"gpu": FOUND}, {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"boot": "another"}, "of another boot"),
        ({"options": {"gpu": {"kind": "nvidia", "mig": "single"}}}, "the options of the backend, or the version"),
        ({"now_s": 100.0 + MAX_AGE_S + 1}, "no scan has confirmed it for 900 s"),
        ({"now_s": 99.0}, "no scan has confirmed it"),
        ({"numbers": {"/dev/a": 6}}, "/dev/a is another node, or gone"),
        ({"numbers": {}}, "/dev/a is another node, or gone"),
    ],
)
def test_what_speaks_against_it_is_named(path: Path, how: dict[str, Any], words: str):
    usable, refused = recalled(path, **how)
    assert usable == {}
    assert words in refused["gpu"]


def test_without_a_boot_id_nothing_is_read_or_written(path: Path, tmp_path: Path):
    assert recalled(path, boot="") == ({}, {})
    open_last(tmp_path / "other", boot="").note("gpu", FOUND, 1.0, well=True)
    assert not (tmp_path / "other").exists()


def test_a_device_that_was_not_well_keeps_all_from_being_offered_early(path: Path):
    open_last(path).note("gpu", FOUND, 120.0, well=False)
    assert "not well" in recalled(path, 125.0)[1]["gpu"]


def test_a_device_that_is_withdrawn_between_two_scans_counts_at_once(path: Path):
    last = open_last(path)
    last.note("gpu", FOUND, 120.0, well=True)
    last.note_ill("other")
    assert recalled(path, 125.0)[0] == {"gpu": FOUND}
    last.note_ill("gpu")
    assert "not well" in recalled(path, 125.0)[1]["gpu"]


def test_it_counts_once(path: Path):
    """A daemon that dies in its first scan must not offer the same devices at every start."""
    assert open_last(path).take(110.0)[0] == {"gpu": FOUND}
    assert open_last(path).take(111.0) == ({}, {})
    assert not path.exists()


def test_what_no_scan_has_confirmed_is_not_written_again(tmp_path: Path):
    file, two = tmp_path / "f", {**OPTIONS, "other": {"kind": "sim"}}
    last = open_last(file, options=two)
    last.note("gpu", FOUND, 100.0, well=True)
    last.note("other", FOUND, 100.0, well=True)
    last = open_last(file, options=two)
    assert last.take(110.0)[0].keys() == {"gpu", "other"}
    last.note("other", FOUND, 111.0, well=True)
    assert open_last(file, options=two).take(112.0)[0].keys() == {"other"}


def test_one_that_cannot_be_taken_away_is_not_used(path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(_path: Path, *, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert open_last(path).take(110.0) == ({}, {"gpu": "Read-only file system"})


def test_a_backend_that_is_not_configured_is_passed_over(path: Path):
    assert recalled(path, options={"other": {"kind": "sim"}}) == ({}, {})


def test_a_node_that_this_process_never_saw_is_not_asked_for(tmp_path: Path):
    file = tmp_path / "f"
    open_last(file, numbers={}).note("gpu", FOUND, 100.0, well=True)
    assert recalled(file, numbers={})[0] == {"gpu": FOUND}


def test_it_is_written_when_something_changes_and_now_and_then(path: Path):
    last = open_last(path)
    last.note("gpu", FOUND, 100.0, well=True)
    path.unlink()
    last.note("gpu", FOUND, 100.0 + CONFIRM_S - 1, well=True)
    assert not path.exists()
    last.note("gpu", FOUND, 100.0 + CONFIRM_S, well=True)
    assert recalled(path, 100.0 + CONFIRM_S + MAX_AGE_S)[0]
    last.note("gpu", Findings(FOUND.devices[:1]), 101.0 + CONFIRM_S, well=True)
    assert len(recalled(path, 500.0)[0]["gpu"].devices) == 1


def test_options_that_changed_at_a_reload_are_those_of_what_is_written_next(path: Path):
    last = open_last(path)
    last.note("gpu", FOUND, 110.0, well=True)
    new = {"gpu": {"kind": "nvidia", "mig": "none"}}
    last.configure(new)
    last.note("gpu", FOUND, 111.0, well=True)
    assert recalled(path, 112.0, options=new)[0] == {"gpu": FOUND}
    assert recalled(path, 112.0)[0] == {}


def test_the_order_of_keys_makes_no_other_options():
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": "1"})


def test_an_inventory_that_is_too_large_leaves_no_file(path: Path):
    last = open_last(path)
    many = tuple(Device(f"d{n}", attributes={"x": "y" * 4000}) for n in range(FILE_MAX_BYTES // 4000 + 1))
    last.note("gpu", Findings(many), 200.0, well=True)
    assert not path.exists()
    assert "bytes are more than" in last.problem


def test_a_place_that_cannot_be_written_is_a_problem_and_no_more(tmp_path: Path):
    (tmp_path / "file").write_text("")
    last = open_last(tmp_path / "file" / "below")
    last.note("gpu", FOUND, 1.0, well=True)
    assert last.problem


# --- Hostile files ----------------------------------------------------------------------------------------------------


def changed(path: Path, **parts: Any) -> None:
    raw = msgspec.json.decode(path.read_bytes())
    raw["entries"]["gpu"] |= parts
    path.write_bytes(msgspec.json.encode(raw))


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "large", "others", "not json", "deep", "version", "key"])
def test_what_is_no_such_file_is_as_good_as_none(kind: str, path: Path):
    content = path.read_bytes()
    if kind == "others":
        path.chmod(0o666)
    else:
        path.unlink()
    if kind == "link":
        (path.parent / "elsewhere").write_bytes(content)
        path.symlink_to("elsewhere")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind != "others":
        path.write_bytes(
            {
                "large": content + b" " * FILE_MAX_BYTES,
                "not json": b"\xff{",
                "deep": b"[" * 100_000,
                "version": content.replace(b'"version":1', b'"version":2'),
                "key": content.replace(b'"version":1', b'"version":1,"more":1'),
            }[kind]
        )
        path.chmod(0o600)
    usable, refused = recalled(path)
    assert usable == {}
    assert refused["gpu"]


@pytest.mark.parametrize(
    "parts",
    [
        {"devices": [{"id": 1}]},
        {"devices": [{"id": "a", "numa_nodes": [-1]}]},
        {"devices": [{"id": "a", "memory_bytes": -1}]},
        {"devices": [{"id": "x" * 5000}]},
        {"devices": [{"id": f"d{n}"} for n in range(17_000)]},
        {"links": [["a", "nowhere", 1]]},
        {"links": [["a", "b"]]},
        {"nodes": {"/dev/a": "5"}},
        {"confirmed_s": "soon"},
        {"well": 1},
    ],
)
def test_an_entry_that_no_scan_could_have_made_is_refused(path: Path, parts: dict[str, Any]):
    changed(path, **parts)
    usable, refused = recalled(path)
    assert usable == {}
    assert refused["gpu"]


@given(st.binary(max_size=300))
def test_no_content_raises_more_than_a_value_error(content: bytes):
    try:
        decode(content)
    except ValueError:
        return
    assert VERSION


def test_the_number_of_a_node_is_that_of_a_device_and_of_nothing_else(tmp_path: Path):
    assert node_number("/dev/null") == os.makedev(1, 3)
    assert node_number(str(tmp_path)) is None
    assert node_number("/nowhere") is None
    assert node_number("a\0b") is None
