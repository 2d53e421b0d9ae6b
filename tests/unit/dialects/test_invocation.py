"""The tables of flags: where they say a value goes there is a key, and the other program's words are its own."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from fairlead.cli import DIALECTS
from fairlead.config.reference import keys
from fairlead.config.spec import ScanSpec
from fairlead.dialects.goflags import Flag, Kind, Parsed, parse
from fairlead.dialects.invocation import Program, find_refused, merge, place

# Whose devices each offers; those that are not named here offer NVIDIA's.
BACKENDS = {"amd": "amd"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_value_goes_to_a_key_that_there_is(dialect: str):
    flags: tuple[Flag, ...] = import_module(f"fairlead.dialects.{dialect}.command").PROGRAM.flags
    options = import_module(f"fairlead.backends.{BACKENDS.get(dialect, 'nvidia')}.spec").Options
    known = {key.path for key in keys()} | {f"backend.{key.path}" for key in keys(options)}
    assert {flag.into for flag in flags if flag.into} - known == set()
    assert len({flag.name for flag in flags}) == len(flags)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_defaults_are_among_the_choices(dialect: str):
    flags: tuple[Flag, ...] = import_module(f"fairlead.dialects.{dialect}.command").PROGRAM.flags
    for flag in (flag for flag in flags if flag.choices):
        assert set(flag.default if flag.kind is Kind.TEXTS else [flag.default]) <= set(flag.choices)


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "generic"])  # it has --listen
def test_probes_and_metrics_are_served_on_request(dialect: str):
    flags: tuple[Flag, ...] = import_module(f"fairlead.dialects.{dialect}.command").PROGRAM.flags
    parsed = parse(flags, ["--http=127.0.0.1:9402"], {"FAIRLEAD_METRIC_NAMES": "hami,gke"})
    made = place(flags, parsed.values)["http"]
    assert made == {"listen": "127.0.0.1:9402", "names": ["hami", "gke"]}
    assert "http" not in place(flags, parse(flags, [], {}).values)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_was_found_before_is_offered_early_unless_that_is_switched_off(dialect: str):
    program: Program = import_module(f"fairlead.dialects.{dialect}.command").PROGRAM
    words = ['--device={"name": "xy", "groups": [{"paths": [{"path": "/dev/x"}]}]}'] if dialect == "generic" else []

    def translated(**more: str) -> Any:
        return program.read(words, {"NODE_NAME": "n", **more}).translate().config.get("scan", {})

    assert translated().get("remember", ScanSpec().remember) is True
    assert translated(FAIRLEAD_SCAN_REMEMBER="false")["remember"] is False


ONE = Flag("one", Kind.TEXT, "a", key="k.one", choices=("a", "b"), refusal="bad one:", into="part.one")
SOME = Flag("some", Kind.TEXTS, (), choices=("x", "y"), into="part.some")


def test_a_file_goes_before_defaults_and_after_what_is_given():
    parsed = Parsed({"one": "a"}, frozenset())
    merged = merge([ONE], parsed, {"k.one": "b"}, "f.yaml")
    assert (merged.values, merged.source) == ({"one": "b"}, {"one": "f.yaml: k.one"})
    given = Parsed({"one": "a"}, frozenset({"one"}), source={"one": "--one"})
    assert merge([ONE], given, {"k.one": "b"}, "f.yaml") == given


def test_what_only_we_refuse_the_lenient_take():
    parsed = Parsed({"one": "c", "some": ("x", "z")}, frozenset({"one"}), source={"one": "ONE"})
    theirs, ours = "ONE: bad one: c. Use a or b", "--some: unknown word 'z'. Use some of x, y"
    assert list(find_refused([ONE, SOME], parsed, lenient=False)) == [theirs, ours]
    assert list(find_refused([ONE, SOME], parsed, lenient=True)) == [theirs]


def test_a_default_is_not_written():
    assert place([ONE, SOME], {"one": "a", "some": ("x",)}) == {"part": {"some": ["x"]}}
