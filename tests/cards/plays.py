"""The plugins whose cards can be played here, and how each is started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fairlead.standin.conformance import Card, Command, Result, Scenario, Timeouts, run
from fairlead.standin.conformance.card import SUITE
from tests.cards import played
from tests.nvml import Driver, gpus
from tests.peers.nvidia.place import PLUGINS, placed
from tests.peers.nvidia.programs import nvidia_plugin
from tests.toolchain import build_or_skip

# Played side by side: most of the time they wait, 10 s or 30 s after each kubelet restart. C47 has a process of its
# own: after others NVIDIA's plugin may still have such a wait before it, and would register for that reason.
PARTS = (
    "C01-C42 C80-C86 C92",
    "C43-C46",
    "C47",
    "C48-C51",
    "C52-C54 C76",
    "C55-C58",
    "C59-C75 C78 C87-C91",
)


async def sample() -> dict[str, Result]:
    """Upstream's sample plugin. It waits 10 s after a kubelet restart."""
    plugin = await asyncio.to_thread(build_or_skip, "sample-device-plugin")

    async def play(scenarios: list[Scenario]) -> Card:
        return await run(Command((str(plugin),), private_mount=True), scenarios, timeouts=Timeouts.of(20.0))

    return await played(play, PARTS)


async def nvidia() -> dict[str, Result]:
    """NVIDIA's plugin, with eight simulated GPUs. It waits 30 s after an attempt that failed."""
    program = await asyncio.to_thread(nvidia_plugin)

    async def play(scenarios: list[Scenario]) -> Card:
        with placed(Driver(gpus=gpus("H100", 8)), program.files) as place:
            words = place.command(program.words, plugins="{dir}")
            command = Command(tuple(words), variables={"KUBELET_SOCKET": f"{PLUGINS}/kubelet.sock"})
            return await run(command, scenarios, timeouts=Timeouts.of(40.0))

    return await played(play, PARTS)


PLAYS: dict[str, Callable[[], Any]] = {"sample": sample, "nvidia": nvidia}


def about() -> dict[str, Any]:
    """When, and with which suite."""
    return {"date": datetime.now(UTC).date().isoformat(), "suite": SUITE}
