"""Recordings of squat's generic-device-plugin, played with ours: the same outcome, or a difference that is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recorded.differences_generic import DIFFERENCES
from tests.recorded.generic import CASES, ENDED, SERVED, comparable, ended, served, theirs
from tests.recorded.held import check_table
from tests.recorded.outcome import Outcome, judge

NAMES = {"037-name-31": "037b-name-31"}  # two recordings have one number


@pytest.mark.parametrize("name", SERVED)
async def test_what_it_serves_is_theirs_or_as_is_meant(name: str, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch):
    hold(name, await served(CASES[name], kubelet_root, monkeypatch))


@pytest.mark.parametrize("name", ENDED)
def test_it_ends_as_theirs_or_as_is_meant(name: str, kubelet_root: Path):
    hold(name, ended(CASES[name], kubelet_root))


def test_the_guide_has_every_difference_and_no_other():
    check_table("generic", [NAMES.get(name, name) for name in CASES], DIFFERENCES)


def hold(name: str, ours: Outcome) -> None:
    found = judge(DIFFERENCES, NAMES.get(name, name), comparable(theirs(CASES[name]), ours), ours)
    if found:
        pytest.fail("\n".join(found), pytrace=False)
