"""Upstream's sample plugin has the card that the guide says it has."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT
from tests.toolchain import build_or_skip
from tests.unit.standin.conformance.plugins import pick

from fairlead.standin.conformance import SCENARIOS, Command, Level, Mark, Patience, Result, run

pytestmark = [pytest.mark.conformance, pytest.mark.go, pytest.mark.timeout(900)]

# Played side by side: most of the time it waits, 10 s after each kubelet restart. The last one is about the whole run,
# and goes where it ends by itself.
PARTS = ("C01-C42", "C43-C47 C77", "C48-C51", "C52-C54 C76", "C55-C58", "C59-C75")
LITTER = [Path("/tmp/Dev-1"), Path("/tmp/Dev-2")]  # what the sample makes of an Allocate


@pytest.fixture
def no_litter() -> Iterator[None]:
    ours = [path for path in LITTER if not path.exists()]
    yield
    for path in ours:
        path.unlink(missing_ok=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="the sample hard-codes its directory, and mounting over it takes root")
@pytest.mark.usefixtures("no_litter")
async def test_the_card_of_the_sample_plugin_is_the_one_in_the_guide():
    plugin = await asyncio.to_thread(build_or_skip, "sample-device-plugin")
    command = Command((str(plugin),), private_mount=True)
    cards = await asyncio.gather(*(run(command, pick(part), patience=Patience.of(20.0)) for part in PARTS))
    results = {result.scenario.id: result for result in chain.from_iterable(card.results for card in cards)}
    assert sorted(results) == [scenario.id for scenario in SCENARIOS]
    assert summary(list(results.values())) == guide(), {name: each.reason for name, each in results.items()}


def summary(results: list[Result]) -> dict[str, tuple[int, set[str]]]:
    """For each row: how many, and which of them are worth a word."""
    failed = [result for result in results if result.mark is Mark.FAIL]
    passed = [result for result in results if result.mark is Mark.PASS]
    rows = {
        "failed, required": [result for result in failed if result.scenario.level is Level.REQUIRED],
        "failed, advised": [result for result in failed if result.scenario.level is Level.ADVISED],
    }
    return {
        "passed": (len(passed), {result.scenario.id for result in passed if result.reason}),
        **{name: (len(row), {result.scenario.id for result in row}) for name, row in rows.items()},
        "skipped": (sum(result.mark is Mark.SKIP for result in results), set()),
    }


def guide(title: str = "Another plugin's card") -> dict[str, tuple[int, set[str]]]:
    """What the table in the guide says."""
    page = (ROOT / "docs/guide/conformance.md").read_text(encoding="utf-8")
    section = page.split(f"## {title}", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| ([a-z, ]+?) \| (\d+)(.*) \|$", section, re.MULTILINE)
    return {name: (int(count), set(re.findall(r"\[(C\d+)\]", text))) for name, count, text in rows}
