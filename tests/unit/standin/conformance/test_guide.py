"""The guide explains every rule, in the words of the code, under the anchor that the card links to."""

from __future__ import annotations

import re
from pathlib import Path

from fairlead.standin.conformance import CHAPTERS, SCENARIOS
from fairlead.standin.conformance.scenario import GUIDE

PAGE = (Path(__file__).parents[4] / GUIDE).read_text(encoding="utf-8")


def test_every_scenario_has_its_rule_and_its_reason_under_its_anchor():
    for scenario in SCENARIOS:
        section = PAGE.split(f"\n### {scenario.id}\n", 1)[1].split("\n#", 1)[0]
        assert f"({scenario.level}). {scenario.rule}" in section, scenario.id
        assert scenario.why, f"{scenario.id} gives no reason"
        assert scenario.why in section, scenario.id
        assert scenario.link == f"{GUIDE}#{scenario.id.lower()}"


def test_the_guide_has_the_chapters_and_no_other_scenario():
    assert re.findall(r"^### (C\d+)$", PAGE, re.MULTILINE) == [scenario.id for scenario in SCENARIOS]
    for chapter in CHAPTERS:
        assert f"\n## {chapter.title}\n" in PAGE
