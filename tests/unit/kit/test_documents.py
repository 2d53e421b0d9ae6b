"""Documents within bounds: the same answers with and without the C library, and no file that takes the process."""

from __future__ import annotations

import json

import pytest
import yaml

from fairlead.kit.documents import Limits, lines, parse, read
from fairlead.model.errors import ConfigError

LAUGHS = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)
MERGES = "a0: &a0 {x0: 1, y0: 2}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}], x{n}: 1}}\n" for n in range(1, 9)
)

DEEP_BY_ALIASES = "a: &a [x]\n" + "".join(f"b{n}: &{'ab'[n % 2]} [*{'ba'[n % 2]}]\n" for n in range(1, 90))
UNHURRIED = Limits(seconds=600)  # a busy machine reads slowly: the bound that is meant must come first


@pytest.fixture(autouse=True, params=["with the C library", "without it"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without it":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML has no C library here")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", None),
        ("# nothing", None),
        ("just text", "just text"),
        ("\ufeffa: 1", {"a": 1}),
        ("a: &x {b: 1}\nc: {<<: *x, d: 2}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ("a: &x {b: 1}\nc: {b: 2, <<: *x}", {"a": {"b": 1}, "c": {"b": 2}}),
        ("a: {<<: [{b: 1}, {b: 2, c: 3}]}", {"a": {"b": 1, "c": 3}}),
        ("a: [1, 0x10, 1_000, 010, -5, 1.5, .inf]", {"a": [1, 16, 1000, 8, -5, 1.5, float("inf")]}),
        ("a: [yes, off, ~, null, '5', !!str 5]", {"a": [True, False, None, None, "5", "5"]}),
        ("part: 1:30", {"part": "1:30"}),
        ("when: 2026-11-16", {"when": "2026-11-16"}),
        ("when: 2026-99-99", {"when": "2026-99-99"}),
        ("a: <<", {"a": "<<"}),
        ("a: |\n  one\n  two\n", {"a": "one\ntwo\n"}),
        ('{"a": {"b": [1, 2.5, null, true, "\\u00e9"]}}', {"a": {"b": [1, 2.5, None, True, "é"]}}),
        ('{\n\t"a": 1}', {"a": 1}),
        ("1: one", {1: "one"}),
    ],
)
def test_a_document_is_plain_data(text: str, meant: object) -> None:
    assert parse(text, "f.yaml") == meant


def test_what_an_alias_names_is_copied() -> None:
    made = parse("a: &x {b: [1]}\nc: *x", "f.yaml")
    made["a"]["b"].append(2)
    assert made["c"] == {"b": [1]}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: 1\nb: 2\na: 3\n", r"line 3, column 1: the key 'a' is given twice"),
        ('{"a": 1, "a": 2}', r"line 1, column 10: the key 'a' is given twice"),
        ("a: 1\n---\nb: 2\n", r"line 2, column 1: another document begins here"),
        ("!!python/object/apply:os.getpid []", r"line 1, column 1: the tag .* is not supported. Remove it"),
        ("a: !!binary aGVsbG8=", r"line 1, column 4: the tag .* is not supported"),
        ("a: !!set {x}", r"the tag .* is not supported"),
        ("a: !mine x", r"the tag '!mine' is not supported"),
        ("a: !!int x", r"line 1, column 4: this is no whole number"),
        ("a: !!int ''", r"this is no whole number"),
        ("a: !!bool x", r"this is no true or false"),
        ("a: &x [*x]", r"\*x stands for a part that holds this alias itself"),
        ("a: &x {b: {<<: *x}}", r"\*x stands for a part that holds this alias itself"),
        ("a: *x", r"no anchor &x stands before this alias|undefined alias"),
        ("a: {<<: 5}", r"<< takes a mapping or a list of mappings"),
        ("? [a]\n: b", r"a list or a mapping stands as a key"),
        ("a: \x00", r"line 1, column 4: the character U\+0000 is not allowed"),
        ("ok: 1\na: \x1b[2J", r"line 2, column 4: the character U\+001B is not allowed"),
        ("a:\n\tb: 1", r"line 2, column 1: found character .*that cannot start any token"),
        ('fleet: "\\ud800"', r"surrogate pair|invalid Unicode character escape"),
        ('{"fleet": "\\ud800"}', r"surrogate pair|invalid Unicode character escape"),
        (f"a: 1{'0' * 400}", r"line 1, column 4: a number of 401 characters; 64 is the limit. Put it into quotes"),
        (json.dumps({"a": 10**400}), r"a number of 401 characters"),
        (f"a: 0x{'f' * 100_000}", r"text of|a number of"),
        (f"a: {'x' * 70_000}", r"line 1, column 4: text of 70,000 characters; 65,536 is the limit"),
        ("[" * 65 + "]" * 65, r"line 1, column 65: it is nested too deeply: 64 levels are the limit"),
        ("[" * 60_000, r"line 1, column 65: it is nested too deeply"),
        ("{" * 60_000, r"line 1, column 65: it is nested too deeply"),
        ('{"a":' * 500 + "1" + "}" * 500, r"it is nested too deeply"),
        ("- " * 30_000 + "x", r"it is nested too deeply"),
        ("? " * 30_000 + "x", r"it is nested too deeply"),
        (DEEP_BY_ALIASES, r"it is nested too deeply"),
        (LAUGHS, r"line 5, column .*: more than 50,000 values, counting what aliases repeat"),
        (MERGES, r"more than 50,000 values, counting what aliases repeat"),
        ("a: [" + "1," * 60_000 + "]", r"more than 50,000 values"),
        (json.dumps({"a": [1] * 60_000}), r"more than 50,000 values"),
        ("".join(f"%TAG !a{n}! x\n" for n in range(40_000)) + "--- a", r"more than 16 lines that begin with %"),
        ("#" * (2**20 + 1), r"it has more than 1,048,576 bytes, which are the limit"),
        (b"a: \xff", r"line 1: it is not UTF-8 text"),
    ],
)
def test_a_document_out_of_bounds_is_refused_with_its_place(text: str | bytes, fault: str) -> None:
    with pytest.raises(ConfigError, match=rf"f\.yaml: .*({fault})"):
        parse(text, "f.yaml", limits=UNHURRIED)


def test_the_loose_read_the_first_document_and_the_last_of_two_equal_keys() -> None:
    assert parse("a: 1\na: 2\n---\nb: 1\n", "f.yaml", loose=True) == {"a": 2}


@pytest.mark.parametrize("text", [LAUGHS, MERGES, "[" * 60_000, "a: &x [*x]"])
def test_the_loose_have_the_same_bounds(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text, "f.yaml", loose=True)


def test_a_document_that_takes_too_long_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"line 1, column .*: to read so far took -1 s. Make it simpler"):
        parse("[" + "1," * 1000 + "]", "f.yaml", limits=Limits(seconds=-1))


def test_the_lines_of_the_parts() -> None:
    text = "a:\n  - b: 1\n  - {c: 2,\n     d: 3}\n  - e\nf: &x\n  g: 1\nh: *x\n"
    found = lines(text)
    assert found["a",] == 1
    assert found["a", 0] == found["a", 0, "b"] == 2
    assert (found["a", 1], found["a", 1, "c"], found["a", 1, "d"], found["a", 2]) == (3, 3, 4, 5)
    assert (found["f",], found["f", "g"], found["h",]) == (6, 7, 8)


def test_what_is_no_document_has_no_lines() -> None:
    assert lines("a: [") == {}


def test_a_file_is_read(tmp_path) -> None:
    (tmp_path / "f.yaml").write_text("a: 1")
    assert read(tmp_path / "f.yaml") == {"a": 1}


def test_a_file_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        read(tmp_path / "none.yaml")
