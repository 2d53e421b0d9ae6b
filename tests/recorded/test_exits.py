"""Our commands end as the recorded programs did, or as is meant: run as processes, by their exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.apiserver.server import api_server
from tests.recorded import (
    amd,
    amd_labels,
    differences_amd,
    differences_amd_labels,
    differences_generic,
    differences_gke,
    ends,
    generic,
    gke_play,
)
from tests.recorded.ends import End
from tests.recorded.outcome import Differences, Outcome, judge
from tests.vectors.amd import ALLOCATOR
from tests.vectors.amd import amd as amd_cases
from tests.vectors.gke import gke

AMD = {name: case for name, case in amd_cases().items() if name != ALLOCATOR}
GKE = gke()


@pytest.mark.parametrize("name", AMD)
async def test_amd_ends_as_theirs_or_as_is_meant(name: str, kubelet_root: Path):
    hold(differences_amd.DIFFERENCES, name, amd.recorded(AMD[name]), await ends.of_amd(AMD[name], kubelet_root))


@pytest.mark.parametrize("name", GKE)
async def test_gke_ends_as_theirs_or_as_is_meant(name: str, kubelet_root: Path):
    hold(differences_gke.DIFFERENCES, name, gke_play.recorded(GKE[name]), await ends.of_gke(GKE[name], kubelet_root))


@pytest.mark.parametrize("name", generic.CASES)
async def test_generic_ends_as_theirs_or_as_is_meant(name: str, kubelet_root: Path):
    case = generic.CASES[name]
    ended = await ends.of_generic(case, kubelet_root)
    hold(differences_generic.DIFFERENCES, generic.NAMES.get(name, name), generic.theirs(case), ended)


@pytest.mark.parametrize("name", amd_labels.CASES)
async def test_amds_labeller_ends_as_theirs_or_as_is_meant(name: str, tmp_path: Path):
    case = amd_labels.CASES[name]
    async with api_server() as server:
        ended = await ends.of_labels(case, server, tmp_path)
    theirs = amd_labels.recorded(case) | {"runs on": ended.outcome["runs on"]}  # of theirs it was not recorded
    hold(differences_amd_labels.DIFFERENCES, name, theirs, ended)


def hold(differences: Differences, name: str, theirs: Outcome, ended: End) -> None:
    assert "Traceback" not in ended.errors, ended.errors
    if not ended.outcome["runs on"] and ended.outcome["exit"] != 0:
        *notes, line = ended.errors.splitlines()
        assert line.startswith("fairlead "), line
        assert all(re.fullmatch("fairlead generic: .* is left out", note) for note in notes), notes
    if found := judge(differences, name, theirs, ended.outcome, ends=True):
        pytest.fail("\n".join([*found, ended.errors]), pytrace=False)
