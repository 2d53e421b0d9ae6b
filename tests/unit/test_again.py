"""The second play of what failed beside others: a test that fails alone too fails the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import again

HERE = "tests.unit.test_again"
WORDS = ["-m", "node and not alone", "-n", "2", "tests/node"]


class Plays:
    """Stands for pytest: the first play fails the tests that are named, the second ends with `then`."""

    def __init__(self, *names: str, then: int) -> None:
        cases = "".join(f'<testcase classname="{HERE}" name="{name}"><failure/></testcase>' for name in names)
        self.report = f'<testsuites><testsuite><testcase classname="x" name="y"/>{cases}</testsuite></testsuites>'
        self.codes = [1, then]
        self.words: list[tuple[str, ...]] = []

    def __call__(self, *words: str) -> int:
        if not self.words:
            Path(words[-1].removeprefix("--junit-xml=")).write_text(self.report)
        self.words.append(words)
        return self.codes.pop(0)


@pytest.mark.parametrize("then", [0, 1])
def test_the_second_play_decides_and_is_of_the_failed_alone(then: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plays = Plays("test_one[a]", "test_two", then=then)
    monkeypatch.setattr(again, "_pytest", plays)
    assert again.main(WORDS) == then
    names = (f"tests/unit/test_again.py::{name}" for name in ("test_one[a]", "test_two"))
    assert plays.words[1] == ("-m", "node and not alone", *names)


def test_many_failures_are_no_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = Plays(*(f"test_{number}" for number in range(again.AGAIN_MAX + 1)), then=0)
    monkeypatch.setattr(again, "_pytest", plays)
    assert again.main(WORDS) == 1
    assert len(plays.words) == 1


def test_a_run_that_broke_is_not_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = Plays("test_one", then=0)
    plays.codes = [3]
    monkeypatch.setattr(again, "_pytest", plays)
    assert again.main(WORDS) == 3
