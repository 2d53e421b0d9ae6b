"""The extender of the chart: it understands its file, kube-scheduler finds it, and the second scheduler asks it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.cli.scheduler import configuration
from fairlead.config.schedulerspec import SchedulerSpec, load
from tests.chart import helm, render
from tests.chart.shapes import CASES, Object, component, deployment, main_container, of_kind, pod

BOTH = [case for case in CASES if "extender" in CASES[case]]


def files(made: list[Object]) -> dict[str, str]:
    (found,) = [one["data"] for one in of_kind(made, "ConfigMap") if "scheduler.yaml" in one["data"]]
    return dict(found)


def spec(made: list[Object], directory: Path) -> SchedulerSpec:
    file = directory / "scheduler.yaml"
    file.write_text(files(made)["scheduler.yaml"])
    return load(str(file))


@pytest.mark.parametrize("case", BOTH)
def test_the_program_understands_its_file_and_the_kubelet_finds_its_probes(case: str, tmp_path: Path):
    made = helm.objects(CASES[case])
    container = main_container(deployment(made))
    assert container["command"] == ["fairlead", "scheduler", "--config=/etc/fairlead/scheduler.yaml"]
    read = spec(made, tmp_path)
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert read.probes == (f":{ports['metrics']}",)
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}


def test_nothing_of_it_is_there_by_default():
    assert not of_kind(helm.objects(), "Deployment")


def test_defaults_of_the_values_are_those_of_the_program(tmp_path: Path):
    read = spec(helm.objects(CASES["extender"]), tmp_path)
    assert read == SchedulerSpec(probes=(":9402",))


def test_values_become_its_configuration(tmp_path: Path):
    made = helm.objects(CASES["extender, all"])
    read = spec(made, tmp_path)
    assert read.listen == (":12345",)
    assert [one.contract.resource for one in read.terms()] == ["example.com/gpu-memory"]
    assert (read.nodes, read.wake) == (0, False)
    assert (read.tls.cert, read.tls.key, read.tls.client_ca) == tuple(
        f"/etc/fairlead-tls/{name}" for name in ("tls.crt", "tls.key", "ca.crt")
    )
    (service,) = of_kind(made, "Service")
    assert service["spec"]["type"] == "NodePort"
    assert "clusterIP" not in service["spec"]  # each cluster has a range of its own
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["nodePort"]) == (12345, 32766)
    assert service["spec"]["selector"].items() <= pod_labels(made).items()


def test_its_address_may_be_chosen():
    """kube-scheduler as a static pod does not ask the cluster's DNS."""
    (service,) = of_kind(
        helm.objects({"extender": {"enabled": True, "service": {"clusterIP": "10.96.0.39"}}}), "Service"
    )
    assert service["spec"]["clusterIP"] == "10.96.0.39"


def pod_labels(made: list[Object]) -> dict[str, str]:
    labels: dict[str, str] = deployment(made)["spec"]["template"]["metadata"]["labels"]
    return labels


def test_never_are_two_extenders_asked_by_one_scheduler():
    alone = deployment(helm.objects(CASES["extender"]))["spec"]
    assert (alone["replicas"], alone["strategy"]) == (1, {"type": "Recreate"})
    made = helm.objects(CASES["second scheduler"])
    beside = deployment(made)["spec"]
    assert (beside["replicas"], beside["strategy"]) == (2, {"type": "RollingUpdate"})
    assert not of_kind(made, "Service")
    scheduler = yaml.safe_load(files(made)["kube-scheduler.yaml"])
    assert scheduler["leaderElection"] == {
        "leaderElect": True,
        "resourceName": "fairlead-extender",
        "resourceNamespace": "fairlead",
    }


def test_a_disruption_leaves_one_of_several():
    made = helm.objects(CASES["second scheduler"])
    (budget,) = of_kind(made, "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"]["matchLabels"].items() <= pod_labels(made).items()
    assert not of_kind(helm.objects(CASES["extender"]), "PodDisruptionBudget")


RESOURCES: list[list[dict[str, Any]]] = [
    [],
    [{"system": "gpushare"}],
    [{"system": "volcano"}, {"system": "fairlead", "resource": "example.com/gpu-memory", "count": "example.com/gpus"}],
]


@pytest.mark.parametrize("resources", RESOURCES, ids=["by default", "one system", "two"])
def test_the_second_scheduler_has_what_fairlead_scheduler_config_prints(
    resources: list[dict[str, Any]], tmp_path: Path
):
    extender = {"enabled": True, "scheduler": {"enabled": True, "name": "packed"}, "config": {"resources": resources}}
    made = helm.objects({**render.ALONE, "extender": extender})
    read = spec(made, tmp_path)
    (address,) = read.listen
    told = yaml.safe_load(configuration(read, f"http://{address}", "packed"))
    found = yaml.safe_load(files(made)["kube-scheduler.yaml"])
    del found["leaderElection"]
    assert found == told
    assert found["profiles"] == [{"schedulerName": "packed", "percentageOfNodesToScore": 100}]


@pytest.mark.parametrize(
    ("version", "tag"), [("1.31.4", "v1.31.4"), ("v1.32.9-gke.1548000", "v1.32.9"), ("v1.30.2+k3s1", "v1.30.2")]
)
def test_the_second_scheduler_has_the_version_of_the_cluster(version: str, tag: str):
    made = helm.objects(CASES["second scheduler"], "--kube-version", version)
    scheduler, _ = pod(deployment(made))["containers"]
    assert scheduler["image"] == f"registry.k8s.io/kube-scheduler:{tag}"
    assert scheduler["command"] == ["kube-scheduler", "--config=/etc/fairlead/kube-scheduler.yaml", "-v=2"]
    assert scheduler["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"


def test_a_changed_configuration_starts_the_pod_anew():
    """The extender reads its file once."""

    def mark(nodes: int) -> str:
        values = {"extender": {"enabled": True, "config": {"nodes": nodes}}, "podAnnotations": {"a": "b"}}
        notes = deployment(helm.objects(values))["spec"]["template"]["metadata"]["annotations"]
        assert notes["a"] == "b"
        return str(notes["fairlead/config"])

    assert mark(16) == mark(16) != mark(8)


def test_the_defaults_of_the_schema_are_those_of_the_struct():
    config = render.defaults(render.schema()["properties"]["extender"]["properties"]["config"])
    plain = SchedulerSpec()
    assert json.loads(json.dumps(config)) == {
        "resources": [],
        "nodes": plain.nodes,
        "wake": plain.wake,
        "unhealthyConfigMaps": plain.unhealthy_config_maps,
    }


def test_its_metrics_are_scraped_where_those_of_the_plugin_are():
    watched = {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}, "rules": {"enabled": True}}
    made = helm.objects({**CASES["extender"], "metrics": watched})
    for kind, where in (("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")):
        monitors = {component(one): one["spec"] for one in of_kind(made, kind)}
        assert set(monitors) == {"plugin", "extender"}
        assert [one["port"] for one in monitors["extender"][where]] == ["metrics"]
        assert monitors["extender"]["selector"]["matchLabels"].items() <= pod_labels(made).items()
    services = [one["spec"] for one in of_kind(made, "Service") if component(one) == "extender"]
    assert sorted(port["name"] for one in services for port in one["ports"]) == ["extender", "metrics"]
    (alone,) = of_kind(helm.objects({**CASES["second scheduler"], "metrics": watched}), "PrometheusRule")
    assert alone["spec"]["groups"]
