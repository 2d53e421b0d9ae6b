"""Writes the known differences into the stand-in's page: `python -m tests.differential.page`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.differential.compare import Known, known, recorded
from tests.differential.scenarios import SCENARIOS

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "standin.md"
BEGIN, END = "<!-- known differences: made by `python -m tests.differential.page` -->", "<!-- end -->"


def render(page: str) -> str:
    """The page with the table of today."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{_table(known())}\n\n{END}{tail}"


def _table(listed: list[Known]) -> str:
    if not listed:
        return "None."
    rows = ["| | where | kubelet | stand-in | why |", "|---|---|---|---|---|"]
    for one in listed:
        true = {str(what): seen for what, seen in recorded(SCENARIOS[one.scenario]) or ()}
        place = f"{one.scenario.replace('-', ' ')}, {one.looked_at}"
        rows.append(f"| {one.id} | {place} | {_cell(true.get(one.looked_at))} | {_cell(one.standin)} | {one.why} |")
    return "\n".join(rows)


def _cell(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False).replace('|', chr(92) + '|')}`"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
