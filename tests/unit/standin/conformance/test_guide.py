"""The reference explains every rule, in the words of the code, under the anchor that the card links to."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from fairlead.standin.conformance import CHAPTERS, SCENARIOS, Level, Scenario
from fairlead.standin.conformance.evidence import EVIDENCE
from fairlead.standin.conformance.scenario import GUIDE

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / GUIDE).read_text(encoding="utf-8")


def test_every_scenario_has_its_rule_and_its_reason_under_its_anchor():
    for scenario in SCENARIOS:
        section = PAGE.split(f"\n### {scenario.id}\n", 1)[1].split("\n#", 1)[0]
        assert f"({scenario.level}). {scenario.rule}" in section, scenario.id
        assert scenario.why, f"{scenario.id} gives no reason"
        assert scenario.why in section, scenario.id
        assert scenario.link == f"{GUIDE}#{scenario.id.lower()}"


def test_the_reference_has_the_chapters_and_no_other_scenario():
    assert re.findall(r"^### (C\d+)$", PAGE, re.MULTILINE) == [scenario.id for scenario in SCENARIOS]
    for chapter in CHAPTERS:
        assert f"\n## {chapter.title}\n" in PAGE


def test_every_number_is_used_once():
    assert sorted(scenario.id for scenario in SCENARIOS) == [f"C{n:02}" for n in range(1, len(SCENARIOS) + 1)]


# Scenarios that a true kubelet has played, with what came of it.
PLAYED = {
    name
    for file in (ROOT / "tests" / "differential" / "recorded").glob("*.json")
    for name in json.loads(file.read_text())
}
# Where the kubelet's source is the only evidence, and why.
SOURCE_ONLY = {
    "C08": "a dial of 10 s holds up the kubelet of all other tests",
    "C22": "the moment between a list and an Allocate cannot be hit on purpose",
    "C23": "as C22",
    "C43": "a socket that is made while a kubelet sweeps cannot be timed",
    "C44": "a kubelet that ends in the middle of Register cannot be timed",
    "C54": "what a kubelet does with each call is in its source; a flood of calls is not played on it",
    "C61": "a node that shuts down takes the test along",
    "C75": "as C44, for any call",
    "C90": "two resources of one plugin are two calls: there is nothing in common to look at",
}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
def test_a_required_scenario_says_what_a_kubelet_does_and_where_that_was_seen(scenario: Scenario):
    if scenario.level is Level.ADVISED:
        return
    evidence = scenario.evidence
    assert evidence is not None
    assert evidence.does.endswith(".")
    assert re.search(r"\.go \w+", evidence.place)
    if evidence.node:
        module, _, test = evidence.node.partition("::")
        tree = ast.parse((ROOT / "tests" / "node" / f"{module}.py").read_text())
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if evidence.played:
        assert evidence.played in PLAYED
    assert bool(evidence.node or evidence.played) == (scenario.id not in SOURCE_ONLY)


def test_what_only_the_suite_does_is_not_required_but_for_what_a_kubelet_may_see_of_it():
    foreign = {scenario.id for scenario in SCENARIOS if scenario.foreign and scenario.level is Level.REQUIRED}
    assert foreign == {"C15", "C87"}  # a second stream, which a kubelet has after a new registration
    assert set(EVIDENCE) <= {scenario.id for scenario in SCENARIOS}
