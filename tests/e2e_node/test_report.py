"""The table: every spec has a line, whatever became of it, and the page gets the same one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e_node import report
from tests.e2e_node.report import Row
from tests.e2e_node.suite import SPECS

FIRST, SECOND, THIRD = SPECS[:3]


def found(name: str, state: str, *, seconds: float = 0.0, why: str = "", kind: str = "It") -> dict[str, Any]:
    failure = {"Failure": {"Message": why}} if why else {}
    return {"LeafNodeType": kind, "LeafNodeText": name, "State": state, "RunTime": seconds * 1e9, **failure}


def write(file: Path, *reports: dict[str, Any]) -> Path:
    file.write_text(json.dumps([{"SpecReports": reports}]))
    return file


def test_a_spec_is_found_whatever_became_of_it(tmp_path: Path):
    file = write(
        tmp_path / "results.json",
        found("another", "skipped"),
        found(f"{FIRST.name} [NodeConformance] [Feature:X]", "passed", seconds=12.4),
        found(SECOND.name, "failed", seconds=3, why="no device"),
        found(THIRD.name, "skipped", why="too few CPUs"),
    )
    assert report.read(file, FIRST, "") == Row(FIRST, "passed", 12.4)
    assert report.read(file, SECOND, "") == Row(SECOND, "failed", 3.0, "no device")
    assert report.read(file, THIRD, "") == Row(THIRD, "skipped", 0.0, "too few CPUs")


def test_a_node_that_never_got_to_its_spec_says_why(tmp_path: Path):
    setup = found("", "failed", why="the node is not ready", kind="SynchronizedBeforeSuite")
    file = write(tmp_path / "results.json", setup, found(FIRST.name, "skipped"))
    assert report.read(file, FIRST, "nothing") == Row(FIRST, "not run", 0.0, "the node is not ready")
    assert report.read(tmp_path / "none.json", FIRST, "no root") == Row(FIRST, "not run", 0.0, "no root")


def test_a_broken_plugin_must_fail_for_the_right_reason():
    assert Row(FIRST, "failed", why="it timed out: no devices").failed_with("no devices")
    assert not Row(FIRST, "failed", why="the node is not ready").failed_with("no devices")
    assert not Row(FIRST, "passed").failed_with("")


def test_the_table_says_of_the_broken_plugin_what_must_be():
    rows = [Row(FIRST, "passed", 12.4)]
    assert f"| {FIRST.name} | passed | 12 |" in report.table(rows, None)
    assert "failed, as it must" in report.table(rows, Row(FIRST, "failed"))
    assert "passed, but must not" in report.table(rows, Row(FIRST, "passed"))


def test_the_page_has_one_place_for_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    monkeypatch.setattr(report, "PAGE", page)
    report.write(r"| new \1 |")
    assert page.read_text() == f"before\n{report.BEGIN}\n\n" + r"| new \1 |" + f"\n\n{report.END}\nafter\n"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="no place for the table"):
        report.write("x")


def test_the_focus_of_a_spec_chooses_it_and_no_other():
    for spec in SPECS:
        assert [one for one in SPECS if re.search(spec.focus, f"[sig-node] Device {one.name} [Flaky]")] == [spec]
