"""The dashboard of deploy/monitoring: up to date, drawn without overlaps, of metrics that there are."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs import dashboard as program
from tests.monitoring.promql import dashboard, fill, known_metrics, metrics_of, panels, queries, run
from tests.monitoring.provision import find_or_skip

SUBJECTS = ("Devices by state", "Slots held and free", "Faults now", "Registrations", "Size of the lists", "Nodes")


def test_the_file_is_up_to_date():
    assert program.FILE.read_text() == program.text(), f"run: {program.COMMAND}"


def test_every_query_names_metrics_that_there_are():
    asked = queries()
    assert len(asked) > 30
    for where, expression in asked.items():
        named = metrics_of(expression)
        assert named, f"{where}: no metric was found"
        assert named - known_metrics() == set(), where


def test_every_query_follows_the_chosen_nodes():
    for panel in panels(dashboard()):
        for target in panel.get("targets", ()):
            assert '{instance=~"$node"' in target["expr"], panel["title"]


def test_variables_are_three_and_every_one_that_is_used_is_known():
    listed = {each["name"]: each for each in dashboard()["templating"]["list"]}
    assert list(listed) == ["datasource", "node", "resource"]
    asked = [fill(each["query"]["query"]) for each in listed.values() if each["type"] == "query"]
    for query in asked:
        inside = re.fullmatch(r"label_values\((.+), \w+\)", query)
        assert inside is not None
        assert metrics_of(inside[1]) <= known_metrics()
    text = program.FILE.read_text()
    assert set(re.findall(r"\$\{?([a-z]\w*)", text)) == set(listed)


def test_every_panel_asks_the_chosen_source_and_says_what_it_shows():
    source = {"type": "prometheus", "uid": "${datasource}"}
    drawn = [panel for panel in panels(dashboard()) if panel["type"] != "row"]
    for panel in drawn:
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])
        assert panel["title"]
    assert {panel["title"] for panel in drawn} >= set(SUBJECTS)
    assert sum(not panel["description"] for panel in drawn) <= 1


def test_panels_have_their_own_place():
    drawn = list(panels(dashboard()))
    assert len({panel["id"] for panel in drawn}) == len(drawn)
    places = [panel["gridPos"] for panel in drawn]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        assert _apart(one, other, "x", "w") or _apart(one, other, "y", "h"), (one, other)


def _apart(one: dict[str, Any], other: dict[str, Any], start: str, size: str) -> bool:
    return bool(one[start] + one[size] <= other[start] or other[start] + other[size] <= one[start])


def test_nothing_is_loaded_from_elsewhere():
    assert "://" not in program.FILE.read_text()


@pytest.mark.monitoring
def test_promtool_takes_every_query(tmp_path: Path):
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries().values())]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run(find_or_skip().promtool, "check", "rules", str(file))


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("up == 0", {"up"}),
        ('sum by (job, le) (rate(a_total{x="b{c", y=~"d|e"}[5m:1m] offset 1h)) > 1e3', {"a_total"}),
        ("a / on (instance) group_left (cause) b unless ignoring (x) c or vector(0)", {"a", "b", "c"}),
        ("time() - max by (device) (since_seconds) > 3 * 60", {"since_seconds"}),
        ("histogram_quantile(0.99, sum(rate(h_bucket[5m])) by (le))", {"h_bucket"}),
    ],
)
def test_the_metrics_of_a_query_are_found(query: str, names: set[str]):
    assert metrics_of(query) == names
