"""Every recording of NVIDIA's plugin, asked of ours: the same answers, or a difference that is meant."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from fairlead.backends.nvidia import library
from fairlead.backends.nvidia.nvml import Nvml
from tests.recorded.differences import DIFFERENCES, LABEL_DIFFERENCES
from tests.recorded.nvidia import BY_PROCESS, Seen, replay
from tests.vectors import nvidia

CASES = nvidia()
SERVING = [name for name, case in CASES.items() if case.result.state == "serving" and not BY_PROCESS.match(name)]
OTHERWISE = {
    "052-mig-mixed-a100x1-mig-ci-split": "mig-own-name",
    "064-mig-mixed-rtxpro-mig-profile17": "mig-own-name",
    "110-fault-DeviceGetMinorNumber-3": "one-gpu-fails",
    "111-fault-DeviceGetCudaComputeCapability-999": "one-gpu-fails",
    "112-fault-DeviceGetPciInfo-999": "one-gpu-fails",
    "113-fault-DeviceGetName-15": "one-gpu-fails",
    "121-fault-DeviceGetMigMode-999": "one-gpu-fails",
}
REFUSED = [
    name
    for name, case in CASES.items()
    if case.result.state == "exited" and case.result.effective_config and not BY_PROCESS.match(name)
]
seen_differences: set[str] = set()


@pytest.fixture(autouse=True)
def the_library_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy of the simulated driver is loaded here. A second one, from the machine's root, would share its names."""
    monkeypatch.setattr(library, "load", lambda _root: Nvml(library.NAME))


def run(name: str, directory: Path) -> Seen:
    seen = asyncio.run(replay(CASES[name], directory))
    seen_differences.update(seen.verdict.differences)
    return seen


@pytest.mark.parametrize("name", SERVING)
def test_what_nvidia_serves_ours_serves(name: str, tmp_path: Path):
    seen = run(name, tmp_path)
    assert not seen.problem
    recorded = {key for key in CASES[name].result.resources if "(" not in key}  # (second stream) is no resource
    assert seen.resources.keys() == recorded
    assert not seen.verdict.faults
    assert seen.verdict.differences <= DIFFERENCES.keys()


@pytest.mark.parametrize("name", REFUSED)
def test_a_machine_that_nvidia_refuses_is_refused_or_better_served(name: str, tmp_path: Path):
    seen = run(name, tmp_path)
    if name in OTHERWISE:
        assert OTHERWISE[name] in DIFFERENCES
        assert seen.resources
    else:
        assert seen.problem, seen.resources


def test_every_recording_has_its_test():
    elsewhere = {name for name, case in CASES.items() if case.result.effective_config is None or BY_PROCESS.match(name)}
    rest = CASES.keys() - elsewhere - set(SERVING) - set(REFUSED)
    assert {CASES[name].result.state for name in rest} <= {"idle", "retrying"}


def test_the_guide_has_every_difference_and_no_other():
    page = (Path(__file__).parents[2] / "docs/guide/nvidia.md").read_text()
    plugin, labels = page.partition("answers differently")[2].split("### Differences of labels")
    assert rows_of(plugin) == DIFFERENCES
    assert f"\n{len(DIFFERENCES)} differences, all intended." in plugin
    assert rows_of(labels) == LABEL_DIFFERENCES


def rows_of(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\| `([a-z-]+)` \| (.+?) \|$", text, re.MULTILINE))
