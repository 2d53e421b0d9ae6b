"""The contract type that import-linter runs for us: who uses what."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
from grimp import ImportGraph
from tests.contracts import UsedOnlyIn, is_within, uses


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import os\nos.environ.get('HOME')", "os.environ"),
        ("import os as system\nsystem.environ['HOME']", "os.environ"),
        ("from os import environ", "os.environ"),
        ("from os import environ as around", "os.environ"),
        ("def f():\n    from os import getenv", "os.getenv"),
        ("from datetime import datetime\ndatetime.now()", "datetime.datetime.now"),
        ("import datetime\ndatetime.datetime.now()", "datetime.datetime.now"),
        ("import grpc.aio", "grpc"),
        ("from google.protobuf.message import Message", "google"),
    ],
)
def test_a_name_is_found_whatever_it_is_called_in_the_file(code: str, name: str):
    assert any(is_within(used, name) for used, _ in uses(ast.parse(code)))


@pytest.mark.parametrize("code", ["import os\nos.getpid()", "environ = {}\nenviron.get('HOME')", "import grpcio_like"])
def test_other_names_are_not(code: str):
    assert not any(is_within(used, name) for used, _ in uses(ast.parse(code)) for name in ("os.environ", "grpc"))


def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[str]:
    package = tmp_path / "house"
    (package / "room").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "room" / "__init__.py").write_text("import os\nprint(os.environ)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "house", raising=False)
    contract = UsedOnlyIn("a contract", {"root_packages": ["house"]}, options)
    found = contract.check(ImportGraph(), verbose=False)
    offences: list[str] = found.metadata["offences"]
    assert found.kept is not bool(offences)
    return offences


def test_a_module_that_is_not_listed_breaks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert check(tmp_path, monkeypatch, names=["os.environ"]) == ["house.room:2 uses os.environ"]


def test_a_module_that_is_listed_and_does_not_use_it_breaks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert check(tmp_path, monkeypatch, names=["os.environ"], modules=["house"]) == []
    assert check(tmp_path / "b", monkeypatch, names=["sys.argv"], modules=["house"]) == [
        "house may, and does not: take it off the list"
    ]
