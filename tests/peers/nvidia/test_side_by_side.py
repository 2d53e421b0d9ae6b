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
from tests.peers.nvidia.judge import judge
from tests.peers.nvidia.matrix import combinations, with_requests
from tests.peers.nvidia.place import needs_root
from tests.peers.nvidia.programs import nvidia_plugin, our_plugin
from tests.peers.nvidia.replay import replay
from tests.recorded.answers import Verdict
from tests.recorded.differences import DIFFERENCES
from tests.recorded.nvidia import Seen
from tests.recorded.nvidia import replay as replay_here
from tests.vectors import Vector

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
