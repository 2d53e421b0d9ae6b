"""Recordings of kube-device-plugin-mini, played with ours: the same outcome, or a difference that is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.backends.nvidia import library
from fairlead.backends.nvidia.nvml import Nvml
from tests.recorded.differences_doslab import DIFFERENCES
from tests.recorded.held import admissions, check_table, hold, hold_command, hold_process
from tests.vectors.sharing import sharing

CASES = sharing("mini")
# How it starts, or fails to; signals: only a process shows it.
BY_PROCESS = [name for name, case in CASES.items() if not case.outputs.served or name == "069-sighup"]
SERVED = [name for name in CASES if name not in BY_PROCESS]
ADMISSIONS = admissions(CASES)
ONE_POD = "010-single-match"


@pytest.fixture(autouse=True)
def the_library_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy of the simulated driver is loaded here."""
    monkeypatch.setattr(library, "load", lambda _root: Nvml(library.NAME))


@pytest.mark.parametrize("name", SERVED)
async def test_the_outcome_is_theirs_or_one_that_is_meant(
    name: str, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    await hold(CASES[name], DIFFERENCES, kubelet_root, monkeypatch)


@pytest.mark.parametrize("name", ADMISSIONS)
async def test_a_kubelet_that_asks_for_a_preference_comes_to_the_same(
    name: str, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    await hold(CASES[name], DIFFERENCES, kubelet_root, monkeypatch, asks=True)


@pytest.mark.parametrize("name", BY_PROCESS)
async def test_the_command_starts_and_ends_as_theirs_or_as_is_meant(name: str, kubelet_root: Path):
    await hold_process(CASES[name], DIFFERENCES, kubelet_root)


async def test_the_command_serves_a_pod_from_start_to_end(kubelet_root: Path):
    await hold_command(CASES[ONE_POD], kubelet_root)


def test_the_guide_has_every_difference_and_no_other():
    check_table("mini", CASES, DIFFERENCES)
