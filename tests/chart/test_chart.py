"""The chart as a whole: it lints, every object is one that Kubernetes knows, and what is made of it is up to date."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from fairlead._version import __version__
from tests.chart import extra, helm, operator, render
from tests.chart.shapes import CASES, component, of_kind, pod, workloads

KUBERNETES = ("1.26", "1.36")


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_chart_lints():
    assert "0 chart(s) failed" in helm.run("lint", str(helm.CHART), "--strict", "--namespace", helm.NAMESPACE)


def test_every_object_is_one_that_kubernetes_knows(case: str):
    check = extra.load("kubernetes_validate")
    for one in helm.objects(CASES[case]):
        if one["kind"] in operator.SCHEMAS:
            assert operator.mistakes(one) == []
            continue
        for version in KUBERNETES:
            check.validate(one, version, strict=True)


def test_no_two_workloads_share_a_selector(case: str):
    sets = workloads(helm.objects(CASES[case]))
    selectors = [tuple(sorted(one["spec"]["selector"]["matchLabels"].items())) for one in sets]
    assert len(selectors) == len(set(selectors))
    for one, selector in zip(sets, selectors, strict=True):
        chosen = [
            other for other in sets if set(selector) <= set(other["spec"]["template"]["metadata"]["labels"].items())
        ]
        assert chosen == [one]


def test_selectors_of_ones_own_still_differ():
    values = {**CASES["configs"], "selectorLabelsOverride": {"app": "gpu"}}
    sets = of_kind(helm.objects(values), "DaemonSet")
    assert {(one["spec"]["selector"]["matchLabels"]["app"], component(one)) for one in sets} == {
        ("gpu", "plugin"),
        ("gpu", "gfd"),
    }
    assert len({str(one["spec"]["selector"]) for one in sets}) == len(sets)


def test_names_fit_and_are_unique(case: str):
    made = helm.objects(CASES[case], release="a-release-with-a-name-of-just-fifty-three-letters-abc")
    names = [(one["kind"], one["metadata"]["name"]) for one in made]
    assert len(names) == len(set(names))
    assert all(len(name) <= 63 for _, name in names)


def test_every_mount_has_its_volume_and_every_volume_a_mount(case: str):
    for one in workloads(helm.objects(CASES[case])):
        spec = pod(one)
        mounted = [
            mount
            for container in (*spec.get("initContainers", ()), *spec["containers"])
            for mount in container["volumeMounts"]
        ]
        assert {mount["name"] for mount in mounted} == {volume["name"] for volume in spec["volumes"]}


@pytest.mark.parametrize("path", sorted(render.files()), ids=lambda path: str(path.name))
def test_files_of_the_chart_are_up_to_date(path: Any):
    assert path.read_text() == render.files()[path], f"run `{render.COMMAND}`"


@pytest.mark.parametrize("release", render.RELEASES)
def test_manifests_are_up_to_date(release: str):
    text = (render.MANIFESTS / f"{release}.yaml").read_text()
    assert text == render.manifest(release, skip=True), f"run `{render.COMMAND}`"


@pytest.mark.parametrize(("key", "kind"), [("rules", "PrometheusRule"), ("dashboard", "ConfigMap")])
def test_rules_and_dashboard_are_those_of_deploy_monitoring(key: str, kind: str):
    (source,) = [path for path in render.MONITORING if path.stem == key]
    values = {"metrics": {key: {"enabled": True, "labels": {"team": "a"}}}}
    if not source.exists():
        with pytest.raises(helm.HelmError, match=f"without files/{source.name}"):
            helm.template(values)
        return
    (made,) = of_kind(helm.objects(values), kind)
    assert made["metadata"]["labels"]["team"] == "a"
    told = made["spec"] if key == "rules" else yaml.safe_load(made["data"]["fairlead.json"])
    assert told == yaml.safe_load(source.read_text())


def test_there_is_a_manifest_for_each_release_and_no_other():
    assert {path.stem for path in render.MANIFESTS.iterdir()} == set(render.RELEASES)


def test_the_chart_has_the_version_of_the_program():
    chart = yaml.safe_load((helm.CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    assert chart["version"] == __version__
