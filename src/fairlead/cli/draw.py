"""Tables, durations and sizes for people. Colour only on a terminal that wants it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap

from fairlead.kit.text import printable

STYLES: Mapping[str, str] = {
    "dim": "2",
    "bold": "1",
    "good": "32",
    "warn": "33",
    "bad": "31",
    "accent": "36",
}
WIDTH = 100  # of a text in lines
CELL_MAX = 200  # a model or an attribute may be of any length
HEALTH_STYLE: Mapping[str, str] = {"healthy": "good", "suspect": "warn", "probation": "warn", "unhealthy": "bad"}
PHASE_STYLE: Mapping[str, str] = {"streaming": "good", "backoff": "bad", "stopped": "bad"}


def colourful() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, *, on: bool | None = None) -> str:
    if not style or not (colourful() if on is None else on):
        return text
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m"


class Cell:
    """A text with a style; its width is that of the text."""

    __slots__ = ("style", "text")

    def __init__(self, text: object, style: str = "") -> None:
        self.text = short(printable(str(text)), CELL_MAX)
        self.style = style


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Iterable[int] = (),
    shared: Iterable[int] = (),
    nouns: str = "",
) -> str:
    """Columns under headers, two spaces apart. Numbers (named by `right`) align right; empty columns are left out.

    `shared`: columns that, when every row of several has the same, are said once above the table, of all the `nouns`.
    """
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    texts = [{row[column].text for row in cells} for column in range(len(headers))]
    same = [column for column in shared if len(cells) > 1 and len(texts[column]) == 1 and cells[0][column].text]
    kept = [column for column in range(len(headers)) if column not in same and (not cells or any(texts[column]))]
    widths = {column: max(map(len, (headers[column], *texts[column]))) for column in kept}
    aligned_right = set(right)

    def line(row: Sequence[Cell]) -> str:
        parts = []
        for column in kept:
            cell = row[column]
            pad = " " * (widths[column] - len(cell.text))
            shown = paint(cell.text, cell.style)
            parts.append(pad + shown if column in aligned_right else shown + pad)
        return "  ".join(parts).rstrip()

    lines = [line([Cell(header, "dim") for header in headers]), *(line(row) for row in cells)]
    if same:
        values = ", ".join(f"{headers[column].lower()} {cells[0][column].text}" for column in same)
        lines.insert(0, f"all {len(cells)} {nouns}: {values}")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Short and round: 340 ms, 12 s, 3 m, 2 h, 5 d."""
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    for unit, size, limit in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172800)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def memory(number: int) -> str:
    if not number:
        return ""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            value = number / size
            return f"{value:.0f} {unit}" if value >= 10 or value == int(value) else f"{value:.1f} {unit}"
    return f"{number} B"


def short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def wrapped(name: str, text: str) -> list[str]:
    """A text under its name, in lines that a terminal holds."""
    lines = wrap(text, WIDTH - 8, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"  {name:<4}  {lines[0]}", *(f"        {line}" for line in lines[1:])]


def lacking(rows: Iterable[tuple[str, str]]) -> list[str]:
    """What was not looked at, by name and by what it lacks: one socket or one mount is often the reason for many."""
    groups: dict[str, list[str]] = {}
    for name, lacks in rows:
        groups.setdefault(lacks, []).append(name)
    shown: list[tuple[str, str]] = []
    for lacks, names in groups.items():
        left, right = wrap(" ".join(names), 23, break_on_hyphens=False), wrap(lacks, WIDTH - 25, break_on_hyphens=False)
        height = max(len(left), len(right))
        shown += zip([*left, *[""] * (height - len(left))], [*right, *[""] * (height - len(right))], strict=True)
    return [table(["NOT LOOKED AT", "LACKS"], shown)] if shown else []
