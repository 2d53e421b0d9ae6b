"""Recordings of three plugins that share memory, played with ours: the same outcome, or a difference that is meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlead.backends.nvidia import library
from fairlead.backends.nvidia.nvml import Nvml
from tests.recorded import differences_doslab, differences_gpushare, differences_volcano, process
from tests.recorded.held import admissions, check_table, hold, hold_command, hold_end, hold_process
from tests.recorded.outcome import Difference, Place
from tests.recorded.stage import eventually, staged
from tests.vectors.sharing import sharing

CASES = {peer: sharing(peer) for peer in ("mini", "gpushare", "volcano")}
DIFFERENCES: Mapping[str, Mapping[str, Difference]] = {
    "mini": differences_doslab.DIFFERENCES,
    "gpushare": differences_gpushare.DIFFERENCES,
    "volcano": differences_volcano.DIFFERENCES,
}
UNKNOWN_UNIT, UNKNOWN_STRATEGY = "003-unit-unknown", "008-unknown-strategy"
# How they start, or fail to; signals: only a process shows it.
ENDING = {"mini": {"069-sighup"}, "gpushare": {UNKNOWN_UNIT}, "volcano": {UNKNOWN_STRATEGY, "081-sighup"}}
BY_PROCESS = {
    peer: [name for name, case in cases.items() if not case.outputs.served or name in ENDING[peer]]
    for peer, cases in CASES.items()
}
SERVED = {peer: [name for name in cases if name not in BY_PROCESS[peer]] for peer, cases in CASES.items()}
ADMISSIONS = {peer: admissions(cases) for peer, cases in CASES.items()}
ONE_POD = {"mini": "010-single-match", "gpushare": "051-isolation-label-True", "volcano": "020-single-match"}


def every(names: Mapping[str, Iterable[str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("peer", "name"), [(peer, name) for peer in names for name in names[peer]])


@pytest.fixture(autouse=True)
def the_library_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy of the simulated driver is loaded here."""
    monkeypatch.setattr(library, "load", lambda _root: Nvml(library.NAME))


@every(SERVED)
async def test_the_outcome_is_theirs_or_one_that_is_meant(
    peer: str, name: str, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    await hold(CASES[peer][name], DIFFERENCES[peer], kubelet_root, monkeypatch)


@every(ADMISSIONS)
async def test_a_kubelet_that_asks_for_a_preference_comes_to_the_same(
    peer: str, name: str, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    await hold(CASES[peer][name], DIFFERENCES[peer], kubelet_root, monkeypatch, asks=True)


@every(SERVED)
async def test_the_command_ends_as_theirs_or_as_is_meant(peer: str, name: str, kubelet_root: Path):
    await hold_end(CASES[peer][name], DIFFERENCES[peer], kubelet_root)


@every(BY_PROCESS)
async def test_the_command_starts_and_ends_as_theirs_or_as_is_meant(peer: str, name: str, kubelet_root: Path):
    await hold_process(CASES[peer][name], DIFFERENCES[peer], kubelet_root)


@pytest.mark.parametrize("peer", ONE_POD)
async def test_the_command_serves_a_pod_from_start_to_end(peer: str, kubelet_root: Path):
    await hold_command(CASES[peer][ONE_POD[peer]], kubelet_root)


@pytest.mark.parametrize(
    ("peer", "name", "seen"),
    [
        ("gpushare", UNKNOWN_UNIT, {"asked for a preference": True}),
        ("volcano", UNKNOWN_STRATEGY, {"asked for a preference": True}),
    ],
)
async def test_what_they_overlook_is_overlooked_on_demand(
    peer: str, name: str, seen: dict[str, object], kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    number = name.partition("-")[0]
    told = differences_volcano.devices(number, differences_volcano.NODE, whole=True) if peer == "volcano" else ()
    lenient = {"preference": Difference("", (Place(number, seen), *told))}
    await hold(CASES[peer][name], lenient, kubelet_root, monkeypatch, "--lenient")


@pytest.mark.parametrize("peer", CASES)
def test_the_guide_has_every_difference_and_no_other(peer: str):
    check_table(peer, CASES[peer], DIFFERENCES[peer])


async def test_a_node_without_a_gpu_says_that_it_has_none(kubelet_root: Path):
    """Ours on the machine of a recording from which the GPU was taken."""
    case = CASES["gpushare"]["087-stale-socket"]
    bare = replace(case, inputs=replace(case.inputs, gpus=[]))
    async with staged(bare, kubelet_root) as stage:
        await stage.end.start(process.command(bare, stage), process.environment(stage))

        def counted() -> object:
            return stage.nodes()["node-1"]["status"]["capacity"].get("aliyun.com/gpu-count")

        assert await eventually(lambda: counted() == "0"), stage.end.log
        assert stage.end.exit_code is None
        assert await stage.end.stop() == 0
