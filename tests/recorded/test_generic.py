"""Recordings of squat's generic-device-plugin, played with ours: the same outcome, or a difference that is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recorded.differences_generic import DIFFERENCES
from tests.recorded.generic import CASES, NAMES, SERVED, comparable, served, theirs
from tests.recorded.held import check_table
from tests.recorded.outcome import judge


@pytest.mark.parametrize("name", SERVED)
async def test_what_it_serves_is_theirs_or_as_is_meant(name: str, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch):
    ours = await served(CASES[name], kubelet_root, monkeypatch)
    found = judge(DIFFERENCES, NAMES.get(name, name), comparable(theirs(CASES[name]), ours), ours, ends=False)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_the_guide_has_every_difference_and_no_other():
    check_table("generic", [NAMES.get(name, name) for name in CASES], DIFFERENCES)
