"""The guides on metrics and alerts: the table is that of the rules, and the joins give what the text says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.docs.blocks import ROOT
from tests.monitoring.promql import rules, run
from tests.monitoring.provision import find_or_skip

GUIDE = ROOT / "docs" / "guide"
_JOIN = re.compile(r"<!-- promql: (\w+) -->\n```text\n(.*?)```", re.DOTALL)
MAIN = 'namespace="ml", container="main"'
# Two pods share g0, by one and three slots; train has g1 too. No pod has g2.
SERIES = {
    f'fairlead_slot_holder{{resource="x/gpu", device="g0", slot="g0::0", pod="train", {MAIN}}}': 1,
    f'fairlead_slot_holder{{resource="x/gpu", device="g0", slot="g0::1", pod="serve", {MAIN}}}': 1,
    f'fairlead_slot_holder{{resource="x/gpu", device="g0", slot="g0::2", pod="serve", {MAIN}}}': 1,
    f'fairlead_slot_holder{{resource="x/gpu", device="g0", slot="g0::3", pod="serve", {MAIN}}}': 1,
    f'fairlead_slot_holder{{resource="x/gpu", device="g1", slot="g1", pod="train", {MAIN}}}': 1,
    'DCGM_FI_DEV_POWER_USAGE{UUID="g0", gpu="0", pod="serve"}': 400,
    'DCGM_FI_DEV_POWER_USAGE{UUID="g1", gpu="1"}': 300,
    'DCGM_FI_DEV_POWER_USAGE{UUID="g2", gpu="2"}': 200,
    f'gpu_package_power{{gpu_id="0", pod="train", {MAIN}}}': 500,
    f'gpu_package_power{{gpu_id="1", pod="train", {MAIN}}}': 250,
    'gpu_package_power{gpu_id="2", pod="", namespace="", container=""}': 90,
}
ANSWERS = {
    "dcgm": {
        f'{{device="g0", UUID="g0", pod="train", {MAIN}}}': 100,
        f'{{device="g0", UUID="g0", pod="serve", {MAIN}}}': 300,
        f'{{device="g1", UUID="g1", pod="train", {MAIN}}}': 300,
    },
    "idle": {'{UUID="g2"}': 200},
    "amd": {f'{{resource="x/gpu", pod="train", {MAIN}}}': 750},
}


def joins() -> dict[str, str]:
    return dict(_JOIN.findall((GUIDE / "metrics.md").read_text()))


def test_the_table_of_alerts_is_that_of_the_rules():
    text = (GUIDE / "alerts.md").read_text()
    told = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| (\w+) \| ([\w ]+) \|$", text, re.MULTILINE)
    known = [
        (name, name.lower(), rule["labels"]["severity"], rule.get("for", "at once")) for name, rule in rules().items()
    ]
    assert told == known
    assert re.findall(r"^### (\w+)$", text, re.MULTILINE) == list(rules())


def test_every_join_has_an_answer():
    assert joins().keys() == ANSWERS.keys()


@pytest.mark.monitoring
@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_join_gives_what_the_guide_says(name: str, tmp_path: Path):
    expected = [{"labels": labels, "value": value} for labels, value in ANSWERS[name].items()]
    played = {
        "interval": "1m",
        "input_series": [{"series": series, "values": f"{value}x5"} for series, value in SERIES.items()],
        "promql_expr_test": [{"expr": joins()[name], "eval_time": "2m", "exp_samples": expected}],
    }
    file = tmp_path / "joins.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": [played]}))
    run(find_or_skip().promtool, "test", "rules", str(file))
