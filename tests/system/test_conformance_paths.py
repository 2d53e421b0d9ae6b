"""`fairlead generic` and `fairlead smarter` pass every scenario of the conformance suite, on devices of this host."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fairlead.standin.conformance import SCENARIOS, Command, Timeouts, run

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

TIMEOUTS = Timeouts.of(20.0)
# No device is unhealthy, PreStartContainer is not asked for, and nothing breaks the devices of this host.
SKIPPED = {"C24", "C33", "C87", "C88", "C89"}
FULL = "{name: full, groups: [{count: 16, paths: [{path: /dev/full}]}]}"
ZERO = "{name: zero, groups: [{count: 16, paths: [{path: /dev/zero}]}]}"
SMARTER = "- {devicematch: ^full$, nummaxdevices: 16}\n- {devicematch: ^zero$, nummaxdevices: 16}\n"


async def check(tmp_path: Path, *words: str, domain: str, unkept: frozenset[str] = frozenset()) -> None:
    """`unkept`: what is advised, and their contract does not allow."""
    socket = f"--status-socket={tmp_path / 'fl.sock'}"
    card = await run(Command((sys.executable, "-m", "fairlead", *words, socket)), SCENARIOS, timeouts=TIMEOUTS)
    odd = {one.scenario.id: f"{one.outcome}: {one.reason}" for one in card.results if one.reason}
    assert card.conforms, odd
    assert odd.keys() == SKIPPED | unkept, odd
    assert card.resource in {f"{domain}/full", f"{domain}/zero"}  # the one that registers first is looked at
    assert card.devices == 16


async def test_generic_passes_every_scenario(tmp_path: Path):
    await check(tmp_path, "generic", "--listen=", "--device", FULL, "--device", ZERO, domain="squat.ai")


async def test_smarter_passes_every_scenario(tmp_path: Path):
    (tmp_path / "conf.yaml").write_text(SMARTER)
    # All of its resources have the ids 0, 1 and so on.
    unkept = frozenset({"C91"})
    await check(tmp_path, "smarter", f"--config={tmp_path / 'conf.yaml'}", domain="smarter-devices", unkept=unkept)
