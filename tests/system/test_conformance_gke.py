"""`fairlead gke` passes every scenario of the conformance suite: whole GPUs, and shares of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.nvml import Driver, gpus

from fairlead.standin.conformance import SCENARIOS, Command, Timeouts, run

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
TIMEOUTS = Timeouts.of(20.0)
# It does not ask for PreStartContainer, no GPU is unhealthy, and it has one resource.
SKIPPED = {"C24", "C33", "C87", "C88", "C89", "C90", "C91"}
SHARED = {"GPUSharingConfig": {"GPUSharingStrategy": "mps", "MaxSharedClientsPerGPU": 16}}


@contextmanager
def command(root: Path, cards: int, config: dict[str, object]) -> Iterator[Command]:
    """With MPS on one GPU a container may have several shares, as the suite asks for."""
    control = root / "mps-control"
    control.write_text("#!/bin/sh\ncat > /dev/null\necho 100.0\n")
    control.chmod(0o755)
    (root / "gpu.json").write_text(json.dumps(config))
    with Driver(gpus=gpus("T4", cards)).installed(root / "machine") as machine:
        if not machine.has_device_nodes:
            pytest.skip("device nodes need root")
        places = {"host-root": machine.root, "driver-root": machine.root, "gpu-config": root / "gpu.json"}
        words = [f"-{name}={place}" for name, place in (places | {"mps-control": control}).items()]
        yield Command((sys.executable, "-m", "fairlead", "gke", *words), variables=machine.env)


@pytest.mark.parametrize(("cards", "config"), [(8, {}), (1, SHARED)], ids=["whole", "shared"])
async def test_every_scenario_passes(cards: int, config: dict[str, object], tmp_path: Path):
    with command(tmp_path, cards, config) as words:
        card = await run(words, SCENARIOS, timeouts=TIMEOUTS)
    odd = {one.scenario.id: f"{one.outcome}: {one.reason}" for one in card.results if one.reason}
    assert card.conforms, odd
    assert odd.keys() <= SKIPPED, odd
    assert (card.resource, card.devices) == ("nvidia.com/gpu", 16 if config else 8)
