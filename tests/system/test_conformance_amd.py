"""`fairlead amd` passes every scenario of the conformance suite, on simulated GPUs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.amd.machines import Machine, mi210, mi300x
from tests.amd.tree import write

from fairlead.standin.conformance import SCENARIOS, Command, Hooks, Timeouts, run

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

# It does not ask for PreStartContainer, and no GPU is unhealthy. With one resource there is no second one to ask for.
SKIPPED, ALONE = {"C24", "C33"}, {"C90", "C91"}
GPU = "sys/bus/pci/drivers/amdgpu/0000:63:00.0"


async def odd(root: Path, machine: Machine, *words: str, hooks: Hooks | None = None) -> Mapping[str, str]:
    """The reason of each scenario that did not pass."""
    write(root, machine)
    command = Command((sys.executable, "-m", "fairlead", "amd", f"--host-root={root}", *words))
    card = await run(command, SCENARIOS, timeouts=Timeouts.of(20.0), hooks=hooks)
    found = {one.scenario.id: f"{one.outcome}: {one.reason}" for one in card.results if one.reason}
    assert card.conforms, found
    return found


async def test_whole_gpus_that_fail_and_come_back(tmp_path: Path):
    """One is taken from its driver, and given back. Both are seen at once; nothing has to be cleared."""
    at = tmp_path / GPU
    hooks = Hooks(f"mv {at} {tmp_path}/gone", f"mv {tmp_path}/gone {at}")
    found = await odd(tmp_path, mi210(), "-pulse=1", "-logtostderr=true", hooks=hooks)
    assert found.keys() <= SKIPPED | ALONE, found


async def test_partitions_under_two_names(tmp_path: Path):
    machine = mi300x("DPX", "NPS1")
    for gpu in machine.gpus[:4]:
        machine = machine.change(gpu.address, compute="SPX", parts=1)
    found = await odd(tmp_path, machine, "-resource_naming_strategy=mixed")
    assert found.keys() == {*SKIPPED, "C87", "C88", "C89"}, found
