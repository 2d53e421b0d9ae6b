"""The table of rights on the page about security is what helm renders, and leaves out no mode, program or right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.chart import helm, privileges, render
from tests.chart.privileges import MODES
from tests.chart.rights import FEATURE_NAMES, rules
from tests.chart.shapes import CASES, component, granted, of_kind, pod, workloads

# Shown with the directories that they have by default.
ELSEWHERE = {"/var/lib/k0s/kubelet/pod-resources"}


def contexts(cases: Iterable[Mapping[str, Any]]) -> set[str]:
    return {
        str(container["securityContext"])
        for values in cases
        for one in workloads(helm.objects(values))
        for container in (*pod(one).get("initContainers", ()), *pod(one)["containers"])
    }


def directories(cases: Iterable[Mapping[str, Any]]) -> set[str]:
    return {
        volume["hostPath"]["path"]
        for values in cases
        for one in workloads(helm.objects(values))
        for volume in pod(one)["volumes"]
        if "hostPath" in volume
    }


def test_the_table_is_what_the_chart_renders():
    assert privileges.PAGE.read_text() == privileges.page(), "python -m tests.chart.render"


def test_every_dialect_has_a_row():
    dialects = set(render.schema()["properties"]["dialect"]["enum"])
    assert {values.get("dialect", "nvidia") for values in MODES.values()} == dialects


def test_every_program_privilege_and_directory_of_the_chart_is_in_the_table():
    programs = [{component(one) for values in cases for one in workloads(helm.objects(values))} for cases in both()]
    assert programs[0] == programs[1]
    assert contexts(CASES.values()) == contexts(MODES.values())
    assert directories(CASES.values()) - ELSEWHERE <= directories(MODES.values())


def test_every_feature_that_speaks_to_the_api_server_is_in_the_table():
    shown = [
        granted(made, component(account))
        for values in MODES.values()
        for made in [helm.objects(values)]
        for account in of_kind(made, "ServiceAccount")
    ]
    missing = [feature for feature in FEATURE_NAMES if not any(rules(feature) <= row for row in shown)]
    assert missing == []


def both() -> tuple[Iterable[Mapping[str, Any]], Iterable[Mapping[str, Any]]]:
    return CASES.values(), MODES.values()
