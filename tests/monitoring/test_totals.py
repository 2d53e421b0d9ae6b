"""Totals over all nodes: what the guide lists is recorded, and the numbers are those of the nodes together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.monitoring.play import play
from tests.monitoring.promql import known_metrics, metrics_of, totals

GUIDE = (ROOT / "docs" / "guide" / "alerts.md").read_text().partition("## All nodes together")[2].partition("\n## ")[0]
# Of n1 half is held; n2 is unused and has one unhealthy slot; of n3 the kubelet does not say who holds what; n4 has
# another resource, and nothing that is healthy.
SERIES = {
    'fairlead_slots{instance="n1", resource="x/gpu", state="healthy"}': 8,
    'fairlead_slots{instance="n2", resource="x/gpu", state="healthy"}': 7,
    'fairlead_slots{instance="n3", resource="x/gpu", state="healthy"}': 4,
    'fairlead_slots{instance="n2", resource="x/gpu", state="unhealthy"}': 1,
    'fairlead_slots{instance="n4", resource="x/nic", state="healthy"}': 0,
    'fairlead_slots_held{instance="n1", resource="x/gpu"}': 4,
    'fairlead_slots_held{instance="n2", resource="x/gpu"}': 0,
    'fairlead_slots_free{instance="n1", resource="x/gpu"}': 4,
    'fairlead_slots_free{instance="n2", resource="x/gpu"}': 7,
    'fairlead_devices{instance="n1", resource="x/gpu", health="healthy"}': 8,
    'fairlead_devices{instance="n2", resource="x/gpu", health="unhealthy"}': 1,
}
GPU = 'resource="x/gpu"'
TOTALS = {
    "resource:fairlead_slots:sum": {
        f'{GPU}, state="healthy"': 19,
        f'{GPU}, state="unhealthy"': 1,
        'resource="x/nic", state="healthy"': 0,
    },
    "resource:fairlead_slots_held:sum": {GPU: 4},
    "resource:fairlead_slots_free:sum": {GPU: 11},
    "resource:fairlead_slots_free:max": {GPU: 7},
    "resource:fairlead_nodes:count": {GPU: 3},
    "resource:fairlead_nodes_unused:count": {GPU: 1},
    "resource:fairlead_devices:sum": {f'{GPU}, health="healthy"': 8, f'{GPU}, health="unhealthy"': 1},
}


def test_the_guide_lists_what_is_recorded():
    assert re.findall(r"^\| `(resource:\S+)` \|", GUIDE, re.MULTILINE) == list(totals()) == list(TOTALS)


@pytest.mark.parametrize("name", TOTALS)
def test_a_total_is_of_metrics_that_there_are_and_the_federation_takes_it(name: str):
    named = metrics_of(totals()[name]["expr"])
    assert named
    assert named <= known_metrics()
    (pattern,) = re.findall(r'__name__=~"([^"]+)"', GUIDE)
    assert re.fullmatch(pattern, name)


@pytest.mark.monitoring
@pytest.mark.parametrize("name", TOTALS)
def test_a_total_adds_up_what_the_nodes_say(name: str, tmp_path: Path):
    expected = [{"labels": f"{name}{{{labels}}}", "value": value} for labels, value in TOTALS[name].items()]
    series = {one: f"{value}x9" for one, value in SERIES.items()}
    play(tmp_path, series, [{"expr": name, "eval_time": "5m", "exp_samples": expected}])
