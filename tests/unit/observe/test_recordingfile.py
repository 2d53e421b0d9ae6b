"""The file of a recording: what is written is read back, and what a disk or another hand does to it is told."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.observe.recordings import asked, read_all, state

from fairlead.model.names import DeviceId
from fairlead.observe import recording as rec
from fairlead.observe import recordingfile
from fairlead.observe.recordingfile import MAGIC, RecordingFile, files_of, read

PLENTY = 2**20


@contextmanager
def written(path: Path, max_bytes: int = PLENTY) -> Iterator[RecordingFile]:
    file = RecordingFile(path, max_bytes)
    try:
        yield file
    finally:
        file.close()


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame for each record."""
    monkeypatch.setattr(recordingfile, "BATCH_RECORDS", 1)


def put(file: RecordingFile, *records: rec.Record) -> None:
    for record in records:
        if isinstance(record, rec.State):
            file.put_state(partial(lost_before, record))
        else:
            file.put(partial(itself, record))


def itself(record: rec.Record) -> rec.Record:
    return record


def lost_before(record: rec.State, lost: int) -> rec.Record:
    return replace(record, lost=lost)


def wait_for(condition: Callable[[], object]) -> None:
    for _ in range(20_000):
        if condition():
            return
        threading.Event().wait(0.001)
    pytest.fail("the thread has not come so far")


def test_what_is_put_is_read_back_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    records: list[rec.Record] = [state(), asked(1), rec.Overlaid({}), rec.Judged("sim", DeviceId("d"), "clean", 1.5)]
    with written(tmp_path / "r") as file:
        put(file, *records)
    assert read_all(tmp_path / "r") == (records, [])
    assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o600
    assert file.problem == ""


def test_records_that_gather_share_a_frame(tmp_path: Path) -> None:
    records = [asked(number) for number in range(1000)]
    with written(tmp_path / "r") as file:
        put(file, state(), *records)
    assert read_all(tmp_path / "r") == ([state(), *records], [])
    frames = (tmp_path / "r").read_bytes().count(b"\x78\x01")  # zlib's first bytes
    assert frames < 50


def test_records_before_a_state_are_of_no_use(tmp_path: Path) -> None:
    with written(tmp_path / "r") as file:
        put(file, asked(1), asked(2))
        put(file, state(), (third := asked(3)))
        assert not file.wants_state
    assert read_all(tmp_path / "r")[0] == [state(lost=2), third]


def test_it_stays_within_its_size_and_each_file_begins_with_a_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordingfile, "BATCH_S", 0.0)
    most = 64 * 1024
    with written(tmp_path / "r", most) as file:
        for number in range(400):
            if file.wants_state:
                put(file, state())
            put(file, asked(number, 1000))
            wait_for(lambda: not file._queue)
    sizes = [path.stat().st_size for path in files_of(tmp_path / "r")]
    assert len(sizes) == 2
    assert sum(sizes) <= most
    for path in files_of(tmp_path / "r"):
        assert isinstance(next(read(path, [])), rec.State)
    numbers = [record.number for record in read_all(tmp_path / "r")[0] if isinstance(record, rec.Asked)]
    assert numbers == list(range(numbers[0], 400))  # the newest, and none is missing


def test_while_no_state_comes_a_full_file_takes_no_more(tmp_path: Path) -> None:
    most = 64 * 1024
    with written(tmp_path / "r", most) as file:
        put(file, state(), *(asked(number, 1000) for number in range(400)))
        wait_for(lambda: file.broken)
        assert "Give a larger record.maxSize" in file.problem
    assert (tmp_path / "r").stat().st_size <= most // 2


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("cut", [1, 5, 8, 12, 30])
def test_a_torn_record_is_left_out_and_the_next_daemon_goes_on_behind_the_last_whole_one(
    cut: int, tmp_path: Path
) -> None:
    path = tmp_path / "r"
    with written(path) as file:
        put(file, state(), asked(1), asked(2, 50))
    os.truncate(path, path.stat().st_size - cut)
    found, notes = read_all(path)
    assert [type(record).__name__ for record in found] == ["State", "Asked"]
    assert len(notes) == 1
    assert "torn" in notes[0]
    with written(path) as file:
        put(file, state(fresh=True), asked(3))
    found, notes = read_all(path)
    assert [type(record).__name__ for record in found] == ["State", "Asked", "State", "Asked"]
    assert notes == []


@pytest.mark.usefixtures("one_by_one")
def test_a_damaged_record_ends_the_reading_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with written(path) as file:
        put(file, state(), asked(1), asked(2))
    content = bytearray(path.read_bytes())
    content[-3] ^= 0xFF
    path.write_bytes(content)
    found, notes = read_all(path)
    assert len(found) == 2
    assert notes[0].startswith(f"{path}: byte ")
    assert notes[0].endswith("a record is damaged. What follows is left out")


def test_a_file_that_is_no_recording_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("precious")
    with written(path) as file:
        put(file, state())
        wait_for(lambda: file.problem)
    assert path.read_text() == "precious"
    assert "no recording" in file.problem
    assert file.wants_state


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "nowhere"])
def test_a_place_that_is_no_file_is_a_problem_and_nothing_hangs(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "r"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "target")
    else:
        path = tmp_path / "no" / "r"
    with written(path) as file:
        put(file, state(), asked(1))
        wait_for(lambda: file.problem)
    assert str(path) in file.problem
    assert not (tmp_path / "target").exists()


def test_a_full_disk_is_a_problem_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true_write = os.write
    full = True

    def write(fd: int, content: memoryview) -> int:
        if full and not stat.S_ISFIFO(os.fstat(fd).st_mode):
            raise OSError(28, "No space left on device")
        return true_write(fd, content)

    monkeypatch.setattr(os, "write", write)
    with written(tmp_path / "r") as file:
        put(file, state(), asked(1))
        wait_for(lambda: file.problem)
        assert "No space left on device" in file.problem
        assert file.wants_state
        full = False
        put(file, state(), asked(2))
        wait_for(lambda: not file.problem)
    assert [type(record).__name__ for record in read_all(tmp_path / "r")[0]] == ["State", "Asked"]


def test_a_disk_that_is_slow_costs_records_and_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordingfile, "WAITING_MAX", 10)
    stuck = threading.Event()

    def hangs() -> rec.Record:
        stuck.wait(30)
        return asked(0)

    with written(tmp_path / "r") as file:
        put(file, state())
        file.put(hangs)
        put(file, *(asked(number) for number in range(100)))
        assert len(file._queue) <= 10
        assert (file.broken, file.wants_state) == (True, True)
        assert "too slow" in file.problem
        stuck.set()


def test_large_requests_are_not_kept_in_memory_while_the_disk_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordingfile, "WEIGHT_MAX", 100)
    stuck = threading.Event()

    def hangs() -> rec.Record:
        stuck.wait(30)
        return asked(0)

    with written(tmp_path / "r") as file:
        put(file, state())
        for _ in range(5):
            file.put(hangs, 60)
        assert len(file._queue) <= 4
        assert file.broken
        stuck.set()
        wait_for(lambda: file.has_room)
        put(file, state(), asked(1))
    assert isinstance(read_all(tmp_path / "r")[0][-1], rec.Asked)


def test_no_thread_to_be_had_is_a_problem_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with written(tmp_path / "r") as file:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            put(file, state(), asked(1))
        assert "can't start new thread" in file.problem
        assert file.wants_state
        put(file, state(), asked(2))
        wait_for(lambda: not file.problem)
    assert len(read_all(tmp_path / "r")[0]) == 2


def test_two_daemons_do_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with written(path) as first, written(path) as second:
        put(first, state(), asked(1))
        wait_for(path.exists)
        wait_for(lambda: len(read_all(path)[0]) == 2)
        put(second, state(), asked(2))
        wait_for(lambda: second.problem)
        assert "another daemon records there" in second.problem
        first.release()
        put(first, asked(3))
        put(second, state(), asked(4))
        wait_for(lambda: not second.problem)
    found, notes = read_all(path)
    assert [each.number for each in found if isinstance(each, rec.Asked)] == [1, 4]
    assert notes == []


@pytest.mark.usefixtures("one_by_one")
def test_after_a_record_that_was_left_out_nothing_is_written_until_a_state(tmp_path: Path) -> None:
    def broken() -> rec.Record:
        raise RuntimeError("a defect")

    with written(tmp_path / "r") as file:
        put(file, state(), asked(1))
        file.put(broken)
        put(file, asked(2))  # on its way already: it would follow a hole
        wait_for(lambda: "a defect" in file.problem)
        wait_for(lambda: not file._queue)
        put(file, state(), asked(3))
    found = read_all(tmp_path / "r")[0]
    assert [each.number for each in found if isinstance(each, rec.Asked)] == [1, 3]
    assert [each.lost > 0 for each in found if isinstance(each, rec.State)] == [False, True]


def test_zeros_that_a_lost_host_left_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with written(path) as file:
        put(file, state(), asked(1))
    with path.open("ab") as stream:
        stream.write(bytes(4096))
    assert len(read_all(path)[0]) == 2
    with written(path) as file:
        put(file, state(fresh=True), asked(2))
    found, notes = read_all(path)
    assert (len(found), notes) == (4, [])


@pytest.mark.parametrize("content", [b"", MAGIC[:1], MAGIC[:-1]])
def test_a_recording_that_was_only_begun_is_read_as_empty_and_gone_on_with(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    assert read_all(path) == ([], [])
    with written(path) as file:
        put(file, state(), asked(1))
    found, notes = read_all(path)
    assert (len(found), notes) == (2, [])


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(MAGIC)
    path.chmod(0o644)
    with written(path) as file:
        put(file, state())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_record_that_cannot_be_written_does_not_end_the_thread(tmp_path: Path) -> None:
    def broken() -> rec.Record:
        raise RuntimeError("a defect")

    with written(tmp_path / "r") as file:
        put(file, state())
        file.put(broken)
        wait_for(lambda: "a defect" in file.problem)
        put(file, state(), asked(7))
    assert isinstance(read_all(tmp_path / "r")[0][-1], rec.Asked)
