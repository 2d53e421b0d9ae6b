"""Recordings of Google's plugin for GKE, played with ours: the same outcome, or a difference that is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.backends.nvidia import library
from fairlead.backends.nvidia.nvml import Nvml
from tests.recorded.differences_gke import DIFFERENCES
from tests.recorded.gke_play import play, recorded
from tests.recorded.gke_stage import staged
from tests.recorded.held import check_table
from tests.recorded.outcome import judge, meant
from tests.vectors.gke import gke

CASES = gke()


@pytest.fixture(autouse=True)
def the_library_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy of the simulated driver is loaded here."""
    monkeypatch.setattr(library, "load", lambda _root: Nvml(library.NAME))


@pytest.mark.parametrize("name", CASES)
async def test_the_outcome_is_theirs_or_one_that_is_meant(
    name: str, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    case, told = CASES[name], meant(DIFFERENCES, name)
    theirs = recorded(case)
    async with staged(case, kubelet_root) as stage:
        ours = await play(case, stage, theirs | {where: value for where, (_, value) in told.items()}, monkeypatch)
    if found := judge(DIFFERENCES, name, theirs, ours, ends=False):
        pytest.fail("\n".join(found), pytrace=False)


def test_the_guide_has_every_difference_and_no_other():
    check_table("gke", CASES, DIFFERENCES)
