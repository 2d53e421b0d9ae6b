"""`fairlead doslab`, `gpushare` and `volcano` pass every scenario of the conformance suite.

On simulated GPUs, beside an API server with pods that explain what the suite asks for.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.apiserver.server import api_server
from tests.nvml import Driver, gpus
from tests.nvml import Node as Machine
from tests.system.desk import DIALECTS, NODE, Dialect
from tests.system.supply import put_node, put_supply, write_kubeconfig
from tests.unit.standin.conformance.plugins import pick

from fairlead.standin.conformance import SCENARIOS, Command, Timeouts, run
from fairlead.standin.conformance.rig import Rig

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

# The suite offers parts of the list for a choice. To a kubelet what is not offered is in use, and on another card than
# the promised one there is nothing to choose: so one card for the whole suite, and several for what they can be asked.
ONE, SEVERAL = (1, 16), (3, 8)  # cards, and units of each
OF_SEVERAL = "C01 C18-C33 C38-C40 C46 C57-C58 C67 C72 C75 C82-C86"
TIMEOUTS = Timeouts.of(20.0)
# The unit that each has by default. Small cards keep lists short, and every amount can be promised.
UNIT_BYTES = {"doslab": 1 << 20, "gpushare": 1 << 30, "volcano": 1 << 20}
# They do not ask for PreStartContainer, and no GPU is unhealthy: that has a test of its own. They have one resource.
SKIPPED = {"C24", "C33"}
ALSO_SKIPPED = {"C87", "C88", "C89", "C90", "C91"}

dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


@asynccontextmanager
async def command(dialect: Dialect, root: Path, size: tuple[int, int] = ONE) -> AsyncIterator[tuple[Command, Machine]]:
    count, units = size
    driver = Driver(gpus=gpus("T4", count, memory_total=units * UNIT_BYTES[dialect.name]))
    with driver.installed(root / "machine") as machine:
        async with api_server() as server:
            put_node(server)
            cards = [gpu.uuid if dialect.by_id else str(index) for index, gpu in enumerate(driver.gpus)]
            put_supply(server, dialect, cards, units)
            write_kubeconfig(root / "kubeconfig", server.url)
            variables = {**machine.env, "KUBECONFIG": str(root / "kubeconfig"), "NODE_NAME": NODE}
            yield Command((sys.executable, "-m", "fairlead", dialect.name), variables=variables), machine


@dialects
async def test_every_scenario_passes(dialect: Dialect, tmp_path: Path):
    async with command(dialect, tmp_path) as (words, _):
        card = await run(words, SCENARIOS, timeouts=TIMEOUTS)
    odd = {one.scenario.id: f"{one.outcome}: {one.reason}" for one in card.results if one.reason}
    assert card.conforms, odd
    assert odd.keys() == SKIPPED | ALSO_SKIPPED, odd
    assert (card.resource, card.devices) == (dialect.resource, 16)


@dialects
async def test_with_several_cards_every_scenario_of_admissions_passes(dialect: Dialect, tmp_path: Path):
    async with command(dialect, tmp_path, SEVERAL) as (words, _):
        card = await run(words, pick(OF_SEVERAL), timeouts=TIMEOUTS)
    odd = {one.scenario.id: f"{one.outcome}: {one.reason}" for one in card.results if one.reason}
    assert odd.keys() == SKIPPED, odd
    assert card.devices == 24


@dialects
async def test_slots_of_a_gpu_that_failed_are_refused(dialect: Dialect, tmp_path: Path):
    (unhealthy_refused,) = (scenario for scenario in SCENARIOS if scenario.id == "C24")
    async with command(dialect, tmp_path, SEVERAL) as (words, machine), Rig(words, TIMEOUTS) as rig:
        await rig.open()
        machine.xid(1, 79)
        await rig.until(lambda: len(rig.healthy) == 16, "the GPU failed: its slots are still healthy")
        await unhealthy_refused.play(rig)
        await rig.run_pod(1)
