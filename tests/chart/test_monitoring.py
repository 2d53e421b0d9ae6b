"""Monitors and rules: the Prometheus operator takes them, and they find the pods."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.chart import helm, operator
from tests.chart.shapes import CASES, Object, at, component, daemon_set, main_container, of_kind

WATCHED: dict[str, Any] = {
    "metrics": {
        "podMonitor": {"enabled": True, "interval": "15s", "labels": {"team": "a"}},
        "serviceMonitor": {"enabled": True, "interval": "1m30s", "labels": {"team": "b"}},
        "rules": {"enabled": True, "labels": {"team": "c"}},
    },
}
RELEASES: dict[str, dict[str, Any]] = {
    "plain": WATCHED,
    "selectors of one's own": {**WATCHED, "selectorLabelsOverride": {"app": "gpu"}},
    "names of one's own": {**WATCHED, "nameOverride": "gpus", "fullnameOverride": "all-gpus"},
    "another namespace": {**WATCHED, "namespaceOverride": "elsewhere"},
    "with the extender": {**CASES["extender"], **WATCHED},
    "the extender alone": {**CASES["second scheduler"], **WATCHED},
}
ENDPOINTS = {"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints"}
INTERVALS = {"PodMonitor": "15s", "ServiceMonitor": "1m30s"}
TEAMS = {"PodMonitor": "a", "ServiceMonitor": "b", "PrometheusRule": "c"}


def plugins(made: list[Object], kind: str) -> Object:
    (found,) = [one for one in of_kind(made, kind) if component(one) == "plugin"]
    return found


def custom(made: list[Object]) -> list[Object]:
    return [one for one in made if one["apiVersion"] == operator.API]


@pytest.mark.parametrize("release", RELEASES)
def test_the_operator_takes_every_object_of_its_kinds(release: str):
    found = custom(helm.objects(RELEASES[release]))
    assert {one["kind"] for one in found} == set(operator.SCHEMAS)
    for one in found:
        assert operator.mistakes(one) == []
        assert one["metadata"]["labels"]["team"] == TEAMS[one["kind"]]


def test_without_being_asked_for_none_is_made():
    assert not custom(helm.objects())


@pytest.mark.parametrize("release", [name for name in RELEASES if name != "the extender alone"])
@pytest.mark.parametrize("kind", ENDPOINTS)
def test_a_monitor_of_the_plugin_finds_its_pods_and_asks_for_metrics(kind: str, release: str):
    made = helm.objects(RELEASES[release])
    monitor, plugin = plugins(made, kind), daemon_set(made)
    labels = at(plugin, "spec template metadata labels")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    # Without a namespaceSelector, the operator looks in the monitor's own namespace.
    assert monitor["metadata"]["namespace"] == plugin["metadata"]["namespace"]
    assert monitor["spec"][ENDPOINTS[kind]] == [
        {"port": "metrics", "path": "/metrics", "interval": INTERVALS[kind], "honorLabels": True}
    ]
    assert at(main_container(plugin), "ports metrics containerPort") == 9402


@pytest.mark.parametrize("release", [name for name in RELEASES if name != "the extender alone"])
def test_a_service_monitor_finds_a_service_that_leads_to_the_pods(release: str):
    made = helm.objects(RELEASES[release])
    monitor, service, plugin = plugins(made, "ServiceMonitor"), plugins(made, "Service"), daemon_set(made)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert service["spec"]["selector"].items() <= at(plugin, "spec template metadata labels").items()
    assert service["spec"]["ports"] == [{"name": "metrics", "port": 9402, "targetPort": "metrics"}]


@pytest.mark.parametrize("kind", ENDPOINTS)
def test_a_monitor_finds_no_pods_of_another_program(kind: str):
    made = helm.objects({**CASES["configs"], **WATCHED, "selectorLabelsOverride": {"app": "gpu"}})
    wanted = plugins(made, kind)["spec"]["selector"]["matchLabels"].items()
    pods = [at(one, "spec template metadata labels").items() for one in of_kind(made, "DaemonSet")]
    assert len(pods) == 2
    assert [wanted <= labels for labels in pods].count(True) == 1


def change(one: Object, path: str, value: Any) -> Object:
    """A copy with another value there: by keys, and by places in lists. None: without it."""
    made = copy.deepcopy(one)
    *way, last = [int(word) if word.isdigit() else word for word in path.split()]
    inner: Any = made
    for word in way:
        inner = inner[word]
    inner[last] = value
    if value is None:
        del inner[last]
    return made


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("PodMonitor", "apiVersion", "v1"),
        ("PodMonitor", "metadata labels team", 1),
        ("PodMonitor", "spec endpoints", []),  # that of a ServiceMonitor
        ("PodMonitor", "spec selector app", "gpu"),
        ("PodMonitor", "spec podMetricsEndpoints", []),
        ("PodMonitor", "spec podMetricsEndpoints 0 port", 9402),
        ("PodMonitor", "spec podMetricsEndpoints 0 interval", "30"),
        ("PodMonitor", "spec podMetricsEndpoints 0 interval", 30),
        ("PodMonitor", "spec podMetricsEndpoints 0 honorLabel", True),
        ("PodMonitor", "spec podMetricsEndpoints 0 honorLabels", "true"),
        ("ServiceMonitor", "spec selector matchLabels", {}),
        ("ServiceMonitor", "spec endpoints", None),
        ("ServiceMonitor", "spec endpoints 0 interval", "1s1h"),
        ("PrometheusRule", "spec rules", []),
        ("PrometheusRule", "spec groups 0 name", None),
        ("PrometheusRule", "spec groups 0 name", "fairlead-devices"),  # that of another
        ("PrometheusRule", "spec groups 0 rules 0 expr", None),
        ("PrometheusRule", "spec groups 0 rules 0 for", "5 minutes"),
        ("PrometheusRule", "spec groups 0 rules 0 severity", "critical"),
        ("PrometheusRule", "spec groups 0 rules 0 annotations", {"summary": 1}),
    ],
)
def test_what_the_operator_would_refuse_or_drop_is_a_mistake(kind: str, path: str, value: Any):
    one = plugins(helm.objects(WATCHED), kind)
    assert operator.mistakes(one) == []
    assert len(operator.mistakes(change(one, path, value))) == 1


@pytest.mark.parametrize("interval", ["", "30", "0", "30 s", "1.5m", "1s1h"])
@pytest.mark.parametrize("key", ["podMonitor", "serviceMonitor"])
def test_an_interval_that_the_operator_would_refuse_is_refused(key: str, interval: str):
    with pytest.raises(helm.HelmError) as refused:
        helm.template({"metrics": {key: {"interval": interval}}})
    assert f"metrics/{key}/interval" in str(refused.value)
