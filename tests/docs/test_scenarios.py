"""The list of scenarios names every number, tests that exist and rules that exist; the guide shows it as it is."""

from __future__ import annotations

import ast

import pytest
from tests.node.scenarios import NUMBERS, PAGE, SCENARIOS, Scenario, written

from fairlead.standin import conformance


def test_every_number_has_its_place():
    assert tuple(one.number for one in SCENARIOS) == NUMBERS


@pytest.mark.parametrize("one", SCENARIOS, ids=lambda one: str(one.number))
def test_its_tests_and_rules_exist(one: Scenario):
    assert one.node
    for name in one.node:
        module, _, test = name.partition("::")
        tree = ast.parse((PAGE.parents[2] / "tests" / "node" / f"{module}.py").read_text())
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(one.conformance) <= {rule.id for rule in conformance.SCENARIOS}


def test_the_guide_shows_the_list_as_it_is():
    page = PAGE.read_text()
    assert page == written(page), "run: python -m tests.node.scenarios"
