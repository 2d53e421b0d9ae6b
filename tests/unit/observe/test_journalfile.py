"""The journal on disk: bounded, never waited for, and read whatever became of the files."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.clock import START_S, FakeClock

from fairlead.observe import journalfile
from fairlead.observe.journal import Fact, Journal, row_of
from fairlead.observe.journalfile import LINE_MAX_BYTES, JournalFile, is_about, read_journals


def fact(seq: int, kind: str = "tick", **keys: Any) -> Fact:
    return Fact(seq, START_S + seq, kind, keys)


def write(path: Path, *facts: Fact, **bounds: int) -> JournalFile:
    disk = JournalFile(path, **bounds)
    for one in facts:
        disk.put([one])
    assert disk.drain(30)
    disk.close()
    return disk


def read(directory: Path, most: int = 1000) -> tuple[list[int], list[str]]:
    rows, notes = read_journals(directory, lambda _row: True, most)
    return [row["seq"] for row in rows], notes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fairlead.journal"


def test_what_is_recorded_is_read_back_in_the_shape_of_the_socket(path: Path):
    disk = JournalFile(path)
    journal = Journal(FakeClock(), disk=disk)
    journal.record("allocated", resource="a/b", slots=["x", "y"])
    journal.record_at_once("watchdog-ended", seconds=61.5)
    assert disk.drain(30)
    rows, notes = read_journals(path.parent, lambda _row: True, 10)
    assert [rows[0]] == [row_of(fact) for fact in journal.tail()]
    assert [row["event"] for row in rows] == ["allocated", "watchdog-ended"]
    assert notes == []
    disk.close()


def test_the_files_are_bounded_in_size_and_number_and_the_newest_stay(path: Path):
    facts = [fact(seq, text="x" * 100) for seq in range(200)]
    write(path, *facts, max_bytes=2000, count=3)
    names = sorted(each.name for each in path.parent.iterdir())
    assert names == ["fairlead.journal", "fairlead.journal.1", "fairlead.journal.2"]
    assert all(each.stat().st_size <= 2000 for each in path.parent.iterdir())
    found, notes = read(path.parent)
    assert found == list(range(200 - len(found), 200))
    assert len(found) >= 20
    assert notes == []


def test_a_fact_that_is_too_long_leaves_only_its_keys_out(path: Path):
    write(path, fact(1, text="x" * LINE_MAX_BYTES))
    ((row,), _) = read_journals(path.parent, lambda _row: True, 1)
    assert row["event"] == "tick"
    assert "bytes" in row["left_out"]


def test_a_line_that_was_torn_by_a_kill_costs_only_itself(path: Path):
    write(path, fact(1), fact(2))
    path.write_bytes(path.read_bytes()[:-9])
    write(path, fact(3))
    assert read(path.parent) == ([1, 3], [f"{path}: 1 lines are torn or damaged, and left out"])


@pytest.mark.parametrize(
    "line",
    [
        b"\x00\xff\xfe",
        b"[" * 100_000,
        b"[1]",
        b"{}",
        b'{"seq":1,"at_s":"now","event":"x"}',
        b'{"seq":1,"at_s":1e99,"event":"x"}',
        b'{"seq":1,"at_s":-1,"event":"x"}',
        b'{"seq":1,"at_s":true,"event":"x"}',
        b'{"seq":"1","at_s":1,"event":"x"}',
        b'{"seq":1,"at_s":1,"event":["x"]}',
        b'{"seq":1,"at_s":1',
    ],
)
def test_a_hostile_line_is_left_out_with_a_word(path: Path, line: bytes):
    write(path, fact(1))
    with path.open("ab") as file:
        file.write(line + b"\n")
    write(path, fact(2))
    seqs, notes = read(path.parent)
    assert seqs == [1, 2]
    assert len(notes) == 1


def test_a_hostile_file_is_left_out_with_a_word(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(journalfile, "READ_MAX_BYTES", 1000)
    write(path, fact(1))
    os.mkfifo(path.with_name("pipe.journal"))
    path.with_name("dir.journal").mkdir()
    path.with_name("large.journal").write_bytes(b"x" * 1001)
    path.with_name("notes.txt").write_text("not a journal")
    seqs, notes = read(path.parent)
    assert seqs == [1]
    assert len(notes) == 3


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_nothing_is_written_through_what_is_no_file(path: Path, kind: str):
    target = path.with_name("target")
    target.write_text("")
    if kind == "link":
        path.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    disk = write(path, fact(1))
    assert str(path) in disk.problem
    assert target.read_text() == ""


def test_a_full_disk_is_a_problem_and_passes(path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(_fd: int, _data: Any) -> int:
        raise OSError(28, "No space left on device")

    disk = JournalFile(path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        disk.put([fact(1)])
        assert disk.drain(30)
    assert "No space left on device" in disk.problem
    disk.put([fact(2)])
    assert disk.drain(30)
    disk.close()
    assert disk.problem == ""
    rows, _ = read_journals(path.parent, lambda _row: True, 10)
    assert [(row["event"], row.get("lines")) for row in rows] == [("log-dropped", 1), ("tick", None)]


def test_a_disk_that_hangs_is_not_waited_for_and_what_waits_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch):
    go_on = threading.Event()
    append = JournalFile._append

    def hangs(self: JournalFile, chunk: bytes) -> None:
        go_on.wait(30)
        append(self, chunk)

    monkeypatch.setattr(JournalFile, "_append", hangs)
    monkeypatch.setattr(journalfile, "WAITING_MAX", 5)
    disk = JournalFile(path)
    for seq in range(20):
        disk.put([fact(seq)])
    assert "too slow" in disk.problem
    assert not disk.drain(0.0)
    go_on.set()
    assert disk.drain(30)
    disk.close()
    rows, _ = read_journals(path.parent, lambda _row: True, 100)
    ticks = sum(row["event"] == "tick" for row in rows)
    assert ticks in {5, 6}
    assert sum(row.get("lines", 0) for row in rows) == 20 - ticks


def test_two_daemons_write_while_one_takes_over(path: Path):
    old, new = JournalFile(path, max_bytes=500), JournalFile(path, max_bytes=500)
    for seq in range(0, 20, 2):
        old.put([fact(seq)])
        new.put([fact(seq + 1)])
        assert old.drain(30)
        assert new.drain(30)
    old.close()
    new.close()
    seqs, notes = read(path.parent)
    assert seqs == list(range(20))
    assert notes == []


def test_a_file_that_was_removed_comes_back(path: Path):
    write(path, fact(1))
    path.unlink()
    write(path, fact(2))
    assert read(path.parent) == ([2], [])
    assert json.loads(path.read_text())["seq"] == 2


def test_the_newest_of_all_daemons_are_read_by_time(path: Path):
    write(path, fact(1), fact(3))
    write(path.with_name("nvidia.journal"), fact(2), fact(4))
    assert read(path.parent)[0] == [1, 2, 3, 4]
    assert read(path.parent, most=2)[0] == [3, 4]


def test_without_a_journal_that_is_said(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        read(tmp_path)


ROW = {"seq": 1, "at_s": 100.0, "event": "x"}


@pytest.mark.parametrize(
    ("row", "device", "pod", "fits"),
    [
        ({}, "", "", True),
        ({}, "GPU-a", "", False),
        ({"device": "GPU-abc"}, "GPU-a", "", True),
        ({"device": "GPU-b"}, "GPU-a", "", False),
        ({"devices": ["GPU-b", "GPU-abc"]}, "GPU-abc", "", True),
        ({"slots": ["GPU-abc::1"]}, "GPU-abc", "", True),
        ({"device": {"odd": 1}}, "GPU", "", False),
        ({"pod": "ns/train"}, "", "train", True),
        ({"pod": "ns/train"}, "", "ns/train", True),
        ({"pod": "ns/train"}, "", "tra", False),
        ({"pod": "ns/train", "device": "GPU-a"}, "GPU-b", "train", False),
    ],
)
def test_facts_are_found_by_device_and_pod(row: dict[str, Any], device: str, pod: str, fits: bool):
    assert is_about({**ROW, **row}, 0.0, device, pod) is fits


def test_facts_are_found_by_time():
    assert is_about(ROW, 100.0, "", "")
    assert not is_about(ROW, 100.1, "", "")
