"""A daemon with nothing to offer says the true reason, in its log and in its status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.system.rig import GPU, SIM, running

from fairlead.model.device import Device
from fairlead.model.inventory import Findings
from fairlead.testing import Kubelet

EXCLUDED = SIM.replace(
    "- resource: nvidia.com/gpu", "- {match: {model: '*'}, exclude: true}\n  - resource: nvidia.com/gpu"
)
CROWDED = SIM.replace("- resource: nvidia.com/gpu", "- {resource: nvidia.com/gpu, replicas: 20000}")


class Still:
    """A backend that always finds the same."""

    name = "still"

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    async def discover(self) -> Findings:
        return self._findings


@pytest.mark.parametrize(
    ("text", "backends", "reason"),
    [
        (SIM, {"sim": Still(Findings())}, "no device was found"),
        (
            SIM,
            {"nvidia": Still(Findings(problems=("MPS does not answer yet for nvidia.com/gpu",)))},
            "backend nvidia: MPS does not answer yet for nvidia.com/gpu",
        ),
        (CROWDED, None, "nvidia.com/gpu: 160000 slots"),
        (EXCLUDED, None, "8 devices were found, and no rule takes any. The first is"),
        (EXCLUDED, {"sim": Still(Findings((Device("a", model="x"),)))}, "one device was found, and no rule takes it"),
    ],
    ids=["none", "mps", "refused", "excluded", "one"],
)
async def test_the_reason(kubelet: Kubelet, kubelet_root: Path, text: str, backends: Any, reason: str):
    async with running(kubelet, kubelet_root, text, start=False) as node:
        node.start(backends)
        fact = await node.until_fact("nothing-offered")
        assert reason in str(fact.keys["reason"])
        assert any(reason in problem for problem in node.status().problems)


async def test_a_daemon_that_offers_something_has_no_such_problem(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready(GPU)
        assert node.status().problems == ()
