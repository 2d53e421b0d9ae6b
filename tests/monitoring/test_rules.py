"""The alerts of deploy/monitoring: each fires for its fault, is silent before it and over after it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairlead.policy.offering.stall import MAX_STALL_S
from tests.docs.blocks import ROOT
from tests.monitoring.cases import CASES, PRESENCE, UP
from tests.monitoring.play import play
from tests.monitoring.promql import RULES, known_metrics, metrics_of, rules, run, totals
from tests.monitoring.provision import find_or_skip

ALERTS = sorted(rules())
SEVERITIES = {"critical", "warning", "info"}


def test_every_alert_has_a_story_and_no_other():
    assert sorted(CASES) == ALERTS


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_names_metrics_that_there_are(alert: str):
    named = metrics_of(rules()[alert]["expr"])
    assert named, "no metric was found in the expression"
    assert named - known_metrics() == set()


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_how_bad_it_is_what_it_means_and_where_to_read_on(alert: str):
    rule = rules()[alert]
    assert set(rule["labels"]) == {"severity"}
    assert rule["labels"]["severity"] in SEVERITIES
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor == alert.lower()
    assert f"\n### {alert}\n" in (ROOT / page).read_text()


@pytest.mark.parametrize("alert", ALERTS)
def test_the_texts_of_an_alert_name_labels_that_it_has(alert: str):
    rule = rules()[alert]
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert named <= CASES[alert].labels.keys()


def test_a_list_stalls_the_kubelet_where_the_daemon_says_so_too():
    assert rules()["FairleadListStallsKubelet"]["expr"] == f"fairlead_list_stall_seconds > {MAX_STALL_S}"


@pytest.mark.monitoring
def test_promtool_takes_the_rules():
    assert f"{len(ALERTS) + len(totals())} rules found" in run(find_or_skip().promtool, "check", "rules", str(RULES))


@pytest.mark.monitoring
@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires_for_its_fault_and_not_without_it(alert: str, tmp_path: Path):
    case, severity = CASES[alert], rules()[alert]["labels"]["severity"]
    labels = {"alertname": alert, "alertstate": "firing", "severity": severity, **case.labels}
    text = ", ".join(f'{key}="{value}"' for key, value in labels.items())
    query = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    fired = [{"labels": f"ALERTS{{{text}}}", "value": 1}]
    play(
        tmp_path,
        PRESENCE.get(alert, UP) | case.series,
        [
            {"expr": query, "eval_time": f"{minute}m", "exp_samples": expected}
            for minute, expected in ((case.quiet, []), (case.fires, fired), (case.over, []))
        ],
    )


@pytest.mark.monitoring
def test_a_story_that_goes_otherwise_is_noticed(tmp_path: Path):
    case = CASES["FairleadSlotsHeldTwice"]
    with pytest.raises(AssertionError, match="FAILED"):
        play(tmp_path, case.series, [{"expr": "ALERTS", "eval_time": f"{case.fires}m", "exp_samples": []}])
