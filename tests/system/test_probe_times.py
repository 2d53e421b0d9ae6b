"""Metrics say when a backend was last probed, and how long it may take until the next time."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.system.rig import Node, running
from tests.system.webclient import HTTP, get

from fairlead.app import web
from fairlead.testing import Kubelet


async def times(node: Node) -> dict[str, float]:
    status, text = await get(node, "/metrics")
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert [sample.value for sample in families["fairlead_probe_interval_seconds"].samples] == [0.02]
    samples = families["fairlead_backend_probe_timestamp_seconds"].samples
    return {sample.labels["backend"]: sample.value for sample in samples}


async def test_every_backend_that_is_probed_has_the_time_of_its_last_round(
    kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(web, "FRESH_S", 0.0)
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        first = await times(node)
        assert first.keys() == {"sim"}
        while not (later := await times(node))["sim"] > first["sim"] > 0:
            pass
        assert later["sim"] == pytest.approx(node.daemon.clock.now(), abs=60)
