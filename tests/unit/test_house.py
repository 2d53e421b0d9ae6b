"""What the tree promises a reader: where tests are, what they share, which floors and pins there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from tests import run

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
FROM_A_TEST = re.compile(
    r"^\s*(?:from|import)\s+tests(?:\.\w+)*\.test_\w+|^\s*from\s+\.*test_\w+\s+import", re.MULTILINE
)


def test_what_tests_share_is_in_modules_that_hold_no_tests():
    found = [
        f"{path.relative_to(TESTS)}: {match[0].strip()}"
        for path in sorted(TESTS.rglob("*.py"))
        for match in FROM_A_TEST.finditer(path.read_text())
    ]
    assert not found, "move what is imported into a module whose name does not begin with test_"


def test_unit_tests_are_in_the_directories_of_the_source():
    unit = TESTS / "unit"
    directories = {path.parent.relative_to(unit) for path in unit.rglob("*.py")}
    assert {directory for directory in directories if not (run.PACKAGE / directory).is_dir()} == set()


def test_every_room_has_a_coverage_floor():
    assert sorted(run.FLOORS) == run.rooms()


def test_a_room_is_judged_by_its_lines_and_branches_together():
    def file(lines: int, branches: int) -> dict[str, dict[str, int]]:
        return {
            "summary": {
                "covered_lines": lines,
                "num_statements": 8,
                "covered_branches": branches,
                "num_branches": 2,
            }
        }

    files = {
        "src/fairlead/kit/a.py": file(8, 2),
        "src/fairlead/kit/b.py": file(4, 1),
        "src/fairlead/cli/x/c.py": file(0, 0),
    }
    assert run.shares(files) == {"kit": 75.0, "cli": 0.0}


def test_hooks_before_a_commit_are_programs_of_this_tree_and_download_nothing():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert all(hook["entry"].startswith(".venv/bin/") for hook in hooks)


@pytest.mark.parametrize("name", ["requirements/constraints.txt", "pyproject.toml", ".pre-commit-config.yaml"])
def test_no_registry_is_recorded(name: str):
    assert "://" not in (ROOT / name).read_text()


def test_every_pin_is_exact():
    for line in (ROOT / "requirements" / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[\w.-]+==[\w.]+", line), line
