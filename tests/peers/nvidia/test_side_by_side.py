"""NVIDIA's own plugin and ours, on the same machine, under the same kubelet, with the same settings and requests.

What differs must be in the list of intended differences: the one that docs/guide/nvidia.md shows.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlead.backends.nvidia import library
from fairlead.backends.nvidia.nvml import Nvml
from fairlead.model.errors import FairleadError
from fairlead.model.inventory import NO_LINKS
from fairlead.model.resource import Strategy
from tests.peers.nvidia.matrix import combinations, with_requests
from tests.peers.nvidia.place import needs_root
from tests.peers.nvidia.programs import nvidia_plugin, our_plugin
from tests.peers.nvidia.replay import replay
from tests.recorded.answers import Offered, Verdict, judge_allocation, judge_preference
from tests.recorded.differences import DIFFERENCES
from tests.recorded.nvidia import Seen
from tests.recorded.nvidia import replay as replay_here
from tests.vectors import Vector
from tests.vectors.types import Result

ALL = combinations()
SOME = 12  # in an ordinary run; CI plays them all

pytestmark = [
    pytest.mark.go,
    pytest.mark.timeout(600),  # the first of them may have to build the plugin
    pytest.mark.skipif(needs_root() is not None, reason=str(needs_root())),
]


async def our_lists(vector: Vector, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What ours would offer there, found out in this process: the requests are made of it."""
    with monkeypatch.context() as patch:
        patch.setattr(library, "load", lambda _root: Nvml(library.NAME))
        try:
            return await replay_here(vector, directory)
        except FairleadError as error:
            return Seen(problem=str(error))


def judge(theirs: Result, ours: Result, seen: Seen) -> Verdict:
    verdict = Verdict()
    if ours.state == "waiting" and theirs.state in {"idle", "retrying"}:
        verdict.differences.add("driver-late" if theirs.state == "idle" else "mps-waits")
        return verdict
    if ours.state == "waiting" and any("no devices" in line for line in theirs.log_errors):
        verdict.differences.add("driver-late")  # without a GPU it exits if CDI is chosen, and waits otherwise
        return verdict
    if theirs.state != ours.state or (theirs.exit_code or 0) != (ours.exit_code or 0):
        verdict.faults.append(f"state {ours.state} ({ours.exit_code}), not {theirs.state} ({theirs.exit_code})")
        return verdict
    if sorted(theirs.sockets) != sorted(ours.sockets) or theirs.sockets_after_stop != ours.sockets_after_stop:
        verdict.faults.append(f"sockets {ours.sockets}, not {theirs.sockets}")
    registered = [
        sorted((it.resource_name, it.endpoint, it.version) for it in one.registrations) for one in (theirs, ours)
    ]
    if registered[0] != registered[1]:
        verdict.faults.append(f"registers {registered[1]}, not {registered[0]}")
    if theirs.cdi_specs.keys() != ours.cdi_specs.keys():
        verdict.faults.append(f"CDI files {sorted(ours.cdi_specs)}, not {sorted(theirs.cdi_specs)}")
    for name, recorded in theirs.resources.items():
        mine = ours.resources[name]
        if recorded.devices != mine.devices or recorded.options != mine.options:
            verdict.faults.append(f"{name}: lists {mine.devices}, not {recorded.devices}")
        resource = seen.resources.get(name)
        slots = [device["ID"] for device in mine.devices or ()]
        links = resource.inventory.links if resource else NO_LINKS
        offered = Offered(name, slots, links, packed=resource is not None and resource.strategy is Strategy.PACK)
        for theirs_one, ours_one in zip(recorded.allocate or (), mine.allocate or (), strict=True):
            judge_allocation(verdict, offered, theirs_one, ours_one.response, str(ours_one.error))
        for theirs_two, ours_two in zip(recorded.preferred or (), mine.preferred or (), strict=True):
            judge_preference(verdict, offered, theirs_two, ours_two.response)
    return verdict


async def compare(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    seen = await our_lists(ALL[name], directory, monkeypatch)
    vector = with_requests(ALL[name], seen.resources)
    program = await asyncio.to_thread(nvidia_plugin)
    theirs = await replay(program, vector)
    ours = await replay(our_plugin("--lenient"), vector)
    return judge(theirs, ours, seen)


@pytest.mark.parametrize("name", list(ALL)[:SOME])
async def test_some_combinations(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = await compare(name, tmp_path, monkeypatch)
    assert not verdict.faults
    assert verdict.differences <= DIFFERENCES.keys()


@pytest.mark.peers
@pytest.mark.parametrize("name", list(ALL)[SOME:])
async def test_all_other_combinations(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = await compare(name, tmp_path, monkeypatch)
    assert not verdict.faults
    assert verdict.differences <= DIFFERENCES.keys()


def test_there_are_at_least_a_hundred() -> None:
    assert len(ALL) >= 100
