"""Recordings that are damaged, hostile or made up: reading ends with the place, and nothing stumbles."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.observe.recordings import CONFIG, GPU, asked, read_all, state

from fairlead.model.errors import UsageError
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.observe import recording as rec
from fairlead.observe import recordingfile
from fairlead.observe.recordingfile import MAGIC, read
from fairlead.programs.replay.compare import Comparison


def frame(content: bytes) -> bytes:
    return struct.pack("<II", len(content), zlib.crc32(content)) + content


def packed(value: object) -> bytes:
    return frame(zlib.compress(msgspec.msgpack.encode([value])))


DEEP = b"\x91" * 100_000 + b"\x90"
HOSTILE = {
    "a length of 4 GiB": struct.pack("<II", 2**32 - 1, 0),
    "what cannot be unpacked": frame(b"not zlib"),
    "what unpacks without end": frame(zlib.compress(bytes(recordingfile.FRAME_MAX_BYTES * 4))),
    "no record": packed({"type": "nothing"}),
    "no mapping": packed([1, 2, 3]),
    "a record of wrong types": packed({"type": "state", "version": "one"}),
    "a depth of 100,000": frame(zlib.compress(DEEP)),
    "millions of empty lists": frame(zlib.compress(b"\xdd\x00\x40\x00\x00" + b"\x90" * 2**22)),
    "a time that is none": frame(rec.encode([rec.Probed("sim", float("nan"))])),
    "a time without end": frame(rec.encode([rec.Held(1e300, ())])),
    "text that is none": frame(zlib.compress(b"\xa5\xff\xff\xff\xff\xff")),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_record_ends_the_reading_and_is_named(what: str, tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(MAGIC + frame(rec.encode([state()])) + HOSTILE[what])
    found, notes = read_all(path)
    assert len(found) == 1
    assert len(notes) == 1
    assert f"{path}: byte " in notes[0]


@given(st.binary(max_size=200))
def test_no_bytes_make_it_stumble(content: bytes) -> None:
    path = Path(f"/dev/shm/fairlead-test-{os.getpid()}.rec")
    try:
        path.write_bytes(MAGIC + frame(rec.encode([state()])) + content)
        assert len(list(read(path, []))) >= 1
    finally:
        path.unlink()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it has no state"),
        (MAGIC[:5], "it has no state"),
        (b"fair\n", "it is no recording"),
        (b"fairlead recording 2\n", "it is no recording"),
        (MAGIC, "it has no state"),
        (MAGIC + frame(rec.encode([asked(1)])), "it has no state"),
        (MAGIC + frame(rec.encode([state(version=9)])), "its version is 9"),
        (
            MAGIC + frame(rec.encode([state(config=CONFIG.replace("/gpu", "/ /"))])),
            "does not hold here",
        ),
        (MAGIC + frame(rec.encode([state(config="a: &a [*a]")])), "does not hold here"),
    ],
)
def test_a_recording_that_cannot_be_played_says_why(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        Comparison(path).run()


def test_records_that_contradict_each_other_are_played_all_the_same(tmp_path: Path) -> None:
    """Answers without a question, sources that were never opened, slots of nothing: no traceback."""
    odd: list[rec.Record] = [
        state(),
        rec.Answered(7, 1.0),
        rec.Judged("never", DeviceId("d"), "fault", 1.0),
        rec.Judged("never", DeviceId("d"), "explode", 1.0),
        rec.Judged("never", DeviceId("d"), "cleared", -5.0, code="x"),
        rec.Settled(2.0, ("never", "never", "other"), 0.0, 0.0, {GPU: (1, 2)}, free=((GPU, SlotId("x")),)),
        rec.Asked(8, 3.0, GPU, "Allocate", b"\xff\xff"),
        rec.Answered(8, 3.0, b"\xff"),
        rec.Asked(9, 3.0, ResourceName(""), "Nothing", b""),
        rec.Answered(9, 3.0, status=99, message="x" * 10_000),
        rec.Held(4.0, ((GPU, SlotId("s"), "not/a/pod/at/all"),)),
    ]
    path = tmp_path / "r"
    path.write_bytes(MAGIC + b"".join(frame(rec.encode([record])) for record in odd))
    report = Comparison(path).run()
    assert not report.same
    assert report.records == len(odd)
