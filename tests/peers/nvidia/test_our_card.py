"""`fairlead nvidia` on the simulated driver passes every scenario of the conformance suite."""

from __future__ import annotations

import pytest

from fairlead.standin.conformance import SCENARIOS, Command, Timeouts, run
from fairlead.standin.conformance.card import Outcome
from tests.nvml import Driver, gpus
from tests.peers.nvidia.place import PLUGINS, needs_root, placed
from tests.peers.nvidia.programs import our_plugin

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.timeout(900),
    pytest.mark.skipif(needs_root() is not None, reason=str(needs_root())),
]

PATIENCE_S = 20.0


async def test_every_scenario_passes() -> None:
    program = our_plugin()
    with placed(Driver(gpus=gpus("H100", 8)), program.files) as place:
        words = place.command(program.words, plugins="{dir}")
        # Its directory has another name in there.
        variables = {**program.env, "KUBELET_SOCKET": f"{PLUGINS}/kubelet.sock", "FAIRLEAD_PLUGIN_DIR": PLUGINS}
        card = await run(Command(tuple(words), variables=variables), SCENARIOS, timeouts=Timeouts.of(PATIENCE_S))
    assert {
        one.scenario.id: one.reason for one in card.results if one.outcome not in {Outcome.PASS, Outcome.SKIP}
    } == {}
    assert card.conforms
