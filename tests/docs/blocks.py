"""Reads the fenced blocks of a Markdown page, each with its language, its place and the mark above it.

A mark is an HTML comment on the line before the fence, such as `<!-- test: background -->`. CONTRIBUTING.md lists them.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LANGUAGES = {"console", "python", "yaml", "ini", "json", "text"}
# What a mark may say, and whether a word must follow.
MARKS = {
    "skip": True,
    "file": True,
    "foreign": True,
    "fleet": True,
    "wrong": True,
    "daemon": False,
    "background": False,
    "checkout": False,
}

_MARK = re.compile(r"<!-- test: (\S+)(?: (.*?))? ?-->")
_FENCE = re.compile(r"(`{3,})(\w*)")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int  # of the fence, from 1
    language: str
    text: str
    mark: str = ""
    word: str = ""  # what follows the mark: a file name, a reason

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    where: str
    text: str
    shown: tuple[str, ...]  # the output that the page shows


def read_blocks(page: Path) -> list[Block]:
    blocks: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.fullmatch(lines[number].strip())
        if fence is None:
            number += 1
            continue
        end = next((n for n in range(number + 1, len(lines)) if lines[n].strip() == fence[1]), None)
        if end is None:
            raise ValueError(f"{page.relative_to(ROOT)}:{number + 1}: the block is not closed")
        mark = _MARK.fullmatch(lines[number - 1].strip()) if number else None
        text = textwrap.dedent("\n".join(lines[number + 1 : end])) + "\n"
        given = (mark[1], mark[2] or "") if mark else ("", "")
        blocks.append(Block(page, number + 1, fence[2], text, *given))
        number = end + 1
    return blocks


def commands(block: Block) -> list[Command]:
    """Lines that start with `$ ` are typed, what follows is shown. A backslash at the end continues the line."""
    found: list[tuple[int, list[str], list[str]]] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if found and not found[-1][2] and found[-1][1][-1].endswith("\\"):
            found[-1][1].append(line)
        elif line.startswith("$ "):
            found.append((number, [line.removeprefix("$ ")], []))
        elif found:
            found[-1][2].append(line)
        else:
            raise ValueError(f"{block.where}: a console block starts with a line that starts with '$ '")
    place = block.page.relative_to(ROOT)
    return [Command(f"{place}:{number}", "\n".join(typed), tuple(shown)) for number, typed, shown in found]


def pages() -> list[Path]:
    """All that is written for people and run here."""
    top = [ROOT / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]
