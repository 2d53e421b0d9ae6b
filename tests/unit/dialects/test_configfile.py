"""Config files by the keys of a table: what Go overlooks is repaired before, all else is the strict decoder's."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.dialects.configfile import BadFile, ByHand, Document, decode, shape
from fairlead.dialects.goflags import Flag, Kind

FLAGS = (
    Flag("mode", key="flags.mode"),
    Flag("deep", Kind.BOOL, key="flags.inner.deepOne"),
    Flag("some", Kind.TEXTS, key="flags.some"),
    Flag("every", Kind.DURATION, key="flags.every"),
    Flag("unkept"),
)


class Line(ByHand, frozen=True):
    name: str | None = None


def read(text: str, *, lenient: bool = False) -> Document:
    into = shape("File", FLAGS, {"version": Any, "lines": list[Line]})
    return decode(text, "f.yaml", into, expected="flags", lenient=lenient, loose=lenient)


def test_values_are_found_by_the_keys_of_the_table():
    text = "flags: {mode: a, inner: {deepOne: true}, some: x, every: 5}"
    assert read(text).values(FLAGS) == {
        "flags.mode": "a",
        "flags.inner.deepOne": True,
        "flags.some": ("x",),
        "flags.every": pytest.approx(5e-9),
    }
    assert read("").values(FLAGS) == {}


def test_null_is_not_given_unless_the_go_program_decodes_by_hand():
    found = read("flags: {mode: null, inner: null}\nlines: [{name: null}]")
    assert (found.values(FLAGS), found.problems) == ({}, [])
    assert found.content.lines == [Line(None)]


def test_every_fault_is_named_at_once():
    found = read("flags: {mod: a, inner: {deepOne: 3}, every: soon}\nlines: [{Name: a}, 3]\n3: x")
    assert [".".join(map(str, at)) for at, _ in found.problems] == [
        "flags.mod",
        "flags.inner.deepOne",
        "flags.every",
        "lines.0.Name",
        "lines.1",
        "3",
    ]
    assert found.problems[0][1] == "unknown key 'mod'; did you mean 'mode'? Known: every, inner, mode, some"


def test_the_lenient_take_keys_in_any_case_and_drop_others_and_say_so():
    found = read("FLAGS: {MODE: a, mod: b}\nlines: [{Name: a, name: b}]\nother: 1", lenient=True)
    assert found.problems == []
    assert found.values(FLAGS) == {"flags.mode": "a"}
    assert found.content.lines == [Line("b")]
    assert found.dropped == [("flags", "mod"), ("lines", 0, "Name"), ("other",)]


def test_what_is_no_mapping_is_refused():
    with pytest.raises(BadFile, match=r"f\.yaml: expected keys such as flags, got list"):
        read("- a")
