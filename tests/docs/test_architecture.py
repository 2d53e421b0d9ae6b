"""The architecture page: every room has its sentence, and every file and module that it names exists."""

from __future__ import annotations

import re

import pytest
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
SOURCE = ROOT / "src" / "fairlead"
ROOMS = {path.parent.name for path in SOURCE.glob("*/__init__.py")} | {"library", "testing"}
FILES = sorted(set(re.findall(r"`([a-z_/]+\.py)`", PAGE)))
MODULES = sorted(set(re.findall(rf"\b((?:{'|'.join(sorted(ROOMS))})(?:\.[a-z_]+)+)\b", PAGE)))


def test_every_room_has_a_sentence():
    table = PAGE.partition("## Rooms")[2].partition("\n## ")[0]
    named = {name for line in table.splitlines() if line.startswith("| `") for name in _names(line)}
    assert named == ROOMS


def _names(line: str) -> list[str]:
    return re.findall(r"`([a-z]+)`", line.split("|")[1])


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_named_exists(name: str):
    assert (SOURCE / name).exists() or list(SOURCE.glob(f"**/{name}")), name


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_is_drawn_exists(name: str):
    """Or the module before the last dot, which then has the name."""
    module, _, last = name.rpartition(".")
    whole, part = SOURCE / name.replace(".", "/"), SOURCE / module.replace(".", "/")
    if whole.is_dir() or whole.with_suffix(".py").exists() or last in {"py", "yaml", "md"}:
        return
    source = part / "__init__.py" if part.is_dir() else part.with_suffix(".py")
    assert source.exists(), name
    assert re.search(rf"\b{last}\b", source.read_text()), name
