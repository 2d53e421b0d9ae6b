"""The true kubelet still does what is recorded of it, and what the stand-in is measured by."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping

import pytest

from tests.differential.__main__ import play_true
from tests.differential.compare import differences, recorded
from tests.differential.scenarios import SCENARIOS
from tests.differential.stage import Scenario
from tests.differential.trace import Trace
from tests.node import verdict
from tests.node.cluster import Cluster
from tests.node.rig.places import LOGS, NODE

RECORDED = re.compile(r"v1\.36\.")
CHOSEN = [one for one in SCENARIOS.values() if os.environ.get("NODE_TEST_FULL") or not one.long]


@pytest.fixture(scope="module")
def played(node: None) -> Mapping[str, Trace | BaseException]:
    """All of them at once: most do not get in each other's way, and most of the time is waiting."""
    version = str(Cluster().api.get(f"/api/v1/nodes/{NODE}")["status"]["nodeInfo"]["kubeletVersion"])
    if not RECORDED.match(version):
        pytest.skip(f"what is recorded is what 1.36 did, and this is {version}")
    log = LOGS / "kubelet.log"
    start = log.stat().st_size
    try:
        return asyncio.run(play_true(CHOSEN))
    finally:
        verdict.provoked.append(range(start, log.stat().st_size))


@pytest.mark.parametrize("scenario", CHOSEN, ids=str)
def test_the_true_kubelet_does_what_is_recorded_of_it(played: Mapping[str, Trace | BaseException], scenario: Scenario):
    trace = played[scenario.name]
    if isinstance(trace, BaseException):
        raise trace
    changed = differences(scenario.name, recorded(scenario) or [], trace)
    assert not changed, "\n".join(
        f"{one.looked_at}\n  recorded: {one.kubelet}\n  now: {one.standin}" for one in changed
    )
