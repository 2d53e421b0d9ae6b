"""The texts that the page on troubleshooting quotes are those of the code: ours, and the kubelet's by the stand-in.

`<…>` in a quoted line stands for what differs; each piece between two of them must be in one string of the source. A
text of another program, such as a container runtime, is not held to anything but its origin.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, read_blocks

PAGE = ROOT / "docs" / "guide" / "troubleshooting.md"
SOURCE = ROOT / "src" / "fairlead"
STANDIN = SOURCE / "standin"
_ORIGIN = re.compile(r"<!-- from: (\w+) -->")
_DIFFERS = re.compile(r"<[^<>]*>")


def _quoted() -> list[tuple[str, str]]:
    """Every quoted line with its origin."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    blocks = [block for block in read_blocks(PAGE) if block.language == "text"]
    found = []
    for block in blocks:
        origin = _ORIGIN.fullmatch(lines[block.line - 2].strip())
        assert origin, f"{block.where}: a quoted text needs '<!-- from: fairlead -->' or its like on the line before"
        found += [(origin[1], line) for line in block.text.splitlines()]
    return found


QUOTED = _quoted()


def test_quotes_come_from_those_we_know():
    assert {origin for origin, _ in QUOTED} == {"fairlead", "kubelet", "containerd"}


@pytest.mark.parametrize("line", [line for origin, line in QUOTED if origin == "fairlead"])
def test_a_text_of_ours_is_what_the_code_says(line: str):
    assert _unsaid(line, _strings(of_kubelet=False)) == []


@pytest.mark.parametrize("line", [line for origin, line in QUOTED if origin == "kubelet"])
def test_a_text_of_the_kubelet_is_what_the_stand_in_says(line: str):
    assert _unsaid(line, _strings(of_kubelet=True)) == []


def test_a_text_that_the_code_does_not_say_is_noticed():
    said = frozenset({": cannot write here (", "). ", "Give another directory"})
    assert _unsaid("<dir>: cannot write here (<reason>). Give another directory", said) == []
    assert _unsaid("<dir>: cannot write there (<reason>)", said) == [": cannot write there ("]
    assert _unsaid("<dir>: cannot write here (<reason>). Take another directory", said) == ["). Take another directory"]


def _unsaid(line: str, said: frozenset[str]) -> list[str]:
    """The pieces of a line that no string of the source has."""
    pieces = [piece for piece in _DIFFERS.split(line) if piece.strip()]
    return [piece for piece in pieces if not _is_said(piece, said)]


def _is_said(piece: str, said: frozenset[str]) -> bool:
    """Whole; or as the end of one string and the beginning of another, as where an error quotes another."""
    return any(piece in text for text in said) or any(
        any(text.endswith(piece[:at]) for text in said) and any(text.startswith(piece[at:]) for text in said)
        for at in range(1, len(piece))
    )


@cache
def _strings(*, of_kubelet: bool) -> frozenset[str]:
    paths = [path for path in SOURCE.rglob("*.py") if (STANDIN in path.parents) == of_kubelet]
    return frozenset(text for path in paths for text in _texts(path))


def _texts(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
