"""What came of the specs: read from the suite's report, told as one table, written into the guide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e_node.places import ROOT
from tests.e2e_node.suite import Spec

PAGE = ROOT / "docs" / "guide" / "e2e-node.md"
BEGIN = "<!-- Made by `python -m tests.e2e_node --write-docs`. -->"
END = "<!-- The end of what is made. -->"
PASSED = "passed"
BROKEN = "the plugin that never registers again"


@dataclass(frozen=True, slots=True)
class Row:
    spec: Spec
    result: str  # as the suite says it: passed, failed, skipped, timedout and so on; or "not run"
    seconds: float = 0.0
    why: str = ""

    @property
    def passed(self) -> bool:
        return self.result == PASSED

    def failed_with(self, words: str) -> bool:
        return self.result == "failed" and words in self.why


def read(file: Path, spec: Spec, complaint: str) -> Row:
    """What the report of a run says of the spec that it was for. One that it does not have was not run."""
    before = ""
    for found in _reports(file):
        failure = str((found.get("Failure") or {}).get("Message", ""))
        if found["LeafNodeType"] != "It":
            before = before or failure
        elif _without_labels(found["LeafNodeText"]) == spec.name and (found["State"] != "skipped" or failure):
            # A skip of its own has a reason; one by the focus has none.
            return Row(spec, found["State"], found["RunTime"] / 1e9, failure)
    return Row(spec, "not run", 0.0, before or complaint)


def _without_labels(text: str) -> str:
    """The framework writes some labels behind the name: `[Flaky]`, `[NodeConformance]`."""
    return re.sub(r"( \[[A-Za-z:]+\])+$", "", text)


def _reports(file: Path) -> list[dict[str, Any]]:
    try:
        return [report for suite in json.loads(file.read_text()) for report in suite["SpecReports"]]
    except (OSError, ValueError, KeyError):
        return []


def table(rows: Iterable[Row], broken: Row | None) -> str:
    """For people and for the page: the same table."""
    lines = ["| spec | result | seconds |", "|---|---|---|"]
    lines += [f"| {row.spec.name} | {row.result} | {row.seconds:.0f} |" for row in rows]
    if broken is not None:
        verdict = "passed, but must not" if broken.passed else f"{broken.result}, as it must"
        lines.append(f"| {BROKEN}: {broken.spec.name} | {verdict} | {broken.seconds:.0f} |")
    return "\n".join(lines)


def write(text: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    made = f"{BEGIN}\n\n{text}\n\n{END}"
    fresh, count = re.subn(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: made, page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{PAGE} has no place for the table: it needs {BEGIN} and {END}")
    PAGE.write_text(fresh, encoding="utf-8")
