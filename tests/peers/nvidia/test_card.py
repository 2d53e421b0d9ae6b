"""NVIDIA's plugin has the conformance card that the guide says it has."""

from __future__ import annotations

import asyncio
from itertools import chain

import pytest

from fairlead.standin.conformance import SCENARIOS, Card, Command, Patience, run
from tests.nvml import Driver, gpus
from tests.peers.nvidia.place import PLUGINS, needs_root, placed
from tests.peers.nvidia.programs import Program, nvidia_plugin
from tests.system.test_sample_plugin import guide, summary
from tests.unit.standin.conformance.plugins import pick

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.go,
    pytest.mark.timeout(900),
    pytest.mark.skipif(needs_root() is not None, reason=str(needs_root())),
]

# Played side by side: most of the time it waits, 30 s after each attempt that failed. C47 has a process of its own:
# after others the plugin may still have such a wait before it, and would register for that reason.
PARTS = ("C01-C42", "C43-C46 C77", "C47", "C48-C51", "C52-C54 C76", "C55-C58", "C59-C75")
PATIENCE_S = 40.0


async def test_the_card_of_nvidias_plugin_is_the_one_in_the_guide():
    program = await asyncio.to_thread(nvidia_plugin)
    cards = await asyncio.gather(*(_play(program, part) for part in PARTS))
    results = {result.scenario.id: result for result in chain.from_iterable(card.results for card in cards)}
    assert sorted(results) == [scenario.id for scenario in SCENARIOS]
    assert summary(list(results.values())) == guide("NVIDIA's card"), {
        name: each.reason for name, each in results.items()
    }


async def _play(program: Program, part: str) -> Card:
    with placed(Driver(gpus=gpus("H100", 8)), program.files) as place:
        words = place.command(program.words, plugins="{dir}")
        command = Command(tuple(words), variables={"KUBELET_SOCKET": f"{PLUGINS}/kubelet.sock"})
        return await run(command, pick(part), patience=Patience.of(PATIENCE_S))
