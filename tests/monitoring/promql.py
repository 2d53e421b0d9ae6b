"""What is in deploy/monitoring, for tests: rules, queries of the dashboard, and the metrics that a query names."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from docs import metrics
from tests.docs.blocks import ROOT

MONITORING = ROOT / "deploy" / "monitoring"
RULES = MONITORING / "rules.yaml"
DASHBOARD = MONITORING / "dashboard.json"
# What Prometheus itself adds: whether a scrape worked, and the state of alerts.
OF_PROMETHEUS = frozenset({"up", "ALERTS"})
VARIABLES = {
    "$__rate_interval": "5m",
    "$__range": "1h",
    "$__interval": "1m",
    "${datasource}": "prometheus",
    "$node": ".*",
    "$resource": ".*",
}

_STRINGS = re.compile(r'"(?:\\.|[^"\\])*"')
_MATCHERS = re.compile(r"\{[^{}]*\}")
_RANGES = re.compile(r"\[[^\[\]]*\]")
_LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\()\b")
_WORDS = frozenset(
    {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "group_left", "group_right"}
)


def rules() -> dict[str, dict[str, Any]]:
    """By the name of the alert."""
    return {rule["alert"]: rule for rule in _all_rules() if "alert" in rule}


def totals() -> dict[str, dict[str, Any]]:
    """By the name of the series that is recorded."""
    return {rule["record"]: rule for rule in _all_rules() if "record" in rule}


def _all_rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


def dashboard() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return made


def panels(made: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Those in collapsed rows too."""
    for panel in made.get("panels", ()):
        yield panel
        yield from panels(panel)


def queries() -> dict[str, str]:
    """Every query of the dashboard, by the panel and the target, with values for its variables."""
    return {
        f"{panel['title']} {target['refId']}": fill(target["expr"])
        for panel in panels(dashboard())
        for target in panel.get("targets", ())
    }


def fill(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def metrics_of(expression: str) -> set[str]:
    """The names of series in a query. No parser: what is left when strings, matchers, ranges and labels are gone."""
    for pattern in (_STRINGS, _MATCHERS, _RANGES, _LABELS):
        expression = pattern.sub(" ", expression)
    return {name for name in _NAME.findall(re.sub(r"\b\d[\w.]*", " ", expression)) if name not in _WORDS}


def known_metrics() -> frozenset[str]:
    """All that `/metrics` serves, with the parts of histograms."""
    names = set(OF_PROMETHEUS)
    for name, kind, _text in (*metrics.rows(), *metrics.scheduler_rows()):
        bare = name.strip("`")
        names |= {bare + part for part in ("_bucket", "_sum", "_count")} if kind == "histogram" else {bare}
    return frozenset(names)


def run(promtool: Path, *arguments: str, stdin: str = "") -> str:
    """Its output. AssertionError, with the output, where it does not end with 0."""
    done = subprocess.run(
        [str(promtool), *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode == 0, f"promtool {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
