"""Values: NVIDIA's are taken as they are, and a mistake is named with what would be right."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart import helm, render
from tests.chart.foreign import AMDS, NVIDIAS
from tests.chart.helm import HelmError
from tests.chart.shapes import MPS, SLICED, daemon_set, env, main_container, of_kind, pod


def test_nvidias_own_values_are_taken_and_mean_the_same():
    (made,) = of_kind(helm.objects(NVIDIAS), "DaemonSet")
    assert pod(made)["affinity"] == NVIDIAS["affinity"]
    assert pod(made)["tolerations"] == NVIDIAS["tolerations"]
    assert main_container(made)["command"] == ["fairlead", "nvidia"]


def test_without_values_pods_come_to_the_nodes_that_nvidias_chart_selects():
    def terms(affinity: Any) -> list[str]:
        node = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        return sorted(map(str, node["nodeSelectorTerms"]))

    assert terms(pod(daemon_set(helm.objects()))["affinity"]) == terms(NVIDIAS["affinity"])


@pytest.mark.parametrize("given", [None, {"nodeAffinity": {}}], ids=["none", "another"])
def test_an_affinity_of_ones_own_replaces_it(given: Any):
    assert pod(daemon_set(helm.objects({"affinity": given}))).get("affinity") == given


@pytest.mark.parametrize(
    ("value", "variable", "text"),
    [
        ({"compatWithCPUManager": True}, "PASS_DEVICE_SPECS", "true"),
        ({"migStrategy": "mixed"}, "MIG_STRATEGY", "mixed"),
        ({"failOnInitError": False}, "FAIL_ON_INIT_ERROR", "false"),
        ({"deviceListStrategy": "cdi-cri,envvar"}, "DEVICE_LIST_STRATEGY", "cdi-cri,envvar"),
        ({"deviceIDStrategy": "index"}, "DEVICE_ID_STRATEGY", "index"),
        ({"nvidiaDriverRoot": "/run/nvidia/driver"}, "NVIDIA_DRIVER_ROOT", "/run/nvidia/driver"),
        ({"nvidiaDevRoot": "/run/nvidia"}, "NVIDIA_DEV_ROOT", "/run/nvidia"),
        ({"gdrcopyEnabled": True}, "GDRCOPY_ENABLED", "true"),
        ({"gdsEnabled": True}, "GDS_ENABLED", "true"),
        ({"mofedEnabled": True}, "MOFED_ENABLED", "true"),
        ({"deviceDiscoveryStrategy": "nvml"}, "DEVICE_DISCOVERY_STRATEGY", "nvml"),
        ({"cdi": {"nvidiaHookPath": "/usr/bin/x"}}, "NVIDIA_CDI_HOOK_PATH", "/usr/bin/x"),
        ({"cdi": {"featureFlags": "disable-ipc-discoverer"}}, "CDI_FEATURE_FLAGS", "disable-ipc-discoverer"),
        ({"config": {"map": {"mps": MPS}}, "mps": {"root": "/srv/mps"}}, "MPS_ROOT", "/srv/mps"),
        ({"config": {"map": {"one": SLICED}}}, "CONFIG_FILE", "/etc/fairlead"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_of_nvidias_keys_becomes_its_variable(value: dict[str, Any], variable: str, text: str):
    assert variable not in env(main_container(daemon_set(helm.objects())))
    assert env(main_container(daemon_set(helm.objects(value))))[variable] == text


def test_amds_own_values_are_taken_below_amd():
    made = helm.objects({"dialect": "amd", "amd": AMDS})
    plugin, labeller = daemon_set(made), daemon_set(made, "amd-labeller")
    assert main_container(plugin)["image"] == "example.com/dp:1"
    assert main_container(labeller)["image"] == "example.com/lbl:2"
    assert plugin["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert main_container(plugin)["securityContext"] == AMDS["securityContext"]
    assert main_container(labeller)["securityContext"] == {"privileged": True}
    for one in (plugin, labeller):
        assert pod(one)["nodeSelector"] == AMDS["node_selector"]
        assert pod(one)["tolerations"] == AMDS["tolerations"]
    (account,) = [one for one in of_kind(made, "ServiceAccount") if one["metadata"].get("annotations")]
    assert account["metadata"]["annotations"] == {"example.com/a": "b"}


SIM: dict[str, Any] = {"backends": [{"kind": "sim"}], "rules": [{"resource": "example.com/gpu"}]}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"dialect": "nvida"}, "must be one of 'nvidia', 'amd'"),
    ({"migStrategy": "some"}, "must be one of 'none', 'single', 'mixed'"),
    ({"failOnInitError": "true"}, "failOnInitError"),
    ({"deviceListStrategy": "envvars"}, "deviceListStrategy"),
    ({"nvidiaDriverRoot": "run/nvidia"}, "nvidiaDriverRoot"),
    ({"metrics": {"port": 0}}, "metrics/port"),
    ({"image": {"pullPolicy": "Sometimes"}}, "'Always', 'IfNotPresent', 'Never'"),
    ({"config": {"fallbackStrategies": ["none"]}}, "'named', 'single', 'empty'"),
    ({"rbac": {"features": ["all"]}}, "'amounts', 'assign'"),
    ({"config": {"name": "a", "map": {"b": SLICED}}}, "config.name and config.map are both set"),
    ({"config": {"map": {"a": SLICED, "b": SLICED}}}, "Set config.default to one of a, b"),
    ({"config": {"map": {"a": SLICED}, "default": "b"}}, "b is not in config.map, which has a"),
    ({"config": {"map": {"a": "version: [v1"}}}, "config.map.a is no YAML"),
    ({"dialect": "gke", "config": {"name": "a"}}, "dialect is gke. Use dialect=nvidia"),
    ({"dialect": "amd", "gfd": {"enabled": True}}, "Use dialect=nvidia"),
    ({"amd": {"labeller": {"enabled": True}}}, "Use dialect=amd"),
    ({"dialect": "fairlead"}, "needs a configuration"),
    ({"dialect": "fairlead", "fairlead": {"config": {"rules": []}}}, "no backends"),
    ({"dialect": "fairlead", "fairlead": {"configs": {"a": SIM}}}, "fairlead.configs has a, and nothing says"),
    ({"dialect": "fairlead", "fairlead": {"config": SIM, "configs": {"default": SIM}}}, "is fairlead.config"),
    ({"dialect": "fairlead", "fairlead": {"config": SIM, "configs": {"a": {}}}}, "fairlead.configs.a has no backends"),
    ({"dialect": "fairlead", "fairlead": {"config": SIM, "label": "a/b"}}, "Set fairlead.configs too"),
    ({"dialect": "fairlead", "fairlead": {"configs": {"a": SIM}, "existingConfigMap": "b"}}, "are both set"),
    ({"dialect": "generic"}, "generic.devices"),
    ({"web": {"enabled": True}}, "web.tokenSecret.name"),
    ({"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}, "Set maxUnavailable=0"),
    ({"kubelet": {"rootDir": "/var/lib/kubelet/"}}, "Write it without"),
    ({"extender": {"scheduler": {"enabled": True}}}, "Set extender.enabled=true"),
    ({"extender": {"enabled": True, "replicas": 2}}, "where each scheduler has its own"),
    ({"extender": {"enabled": True, "tls": {"clients": True}}}, "Name a Secret with tls.crt, tls.key and ca.crt"),
    ({"extender": {"enabled": True, "scheduler": {"enabled": True}, "tls": {"secretName": "a"}}}, "on loopback"),
    ({"extender": {"enabled": True, "service": {"nodePort": 32766}}}, "Set extender.service.type=NodePort"),
    ({"extender": {"enabled": True, "port": 9402}}, "extender.port and metrics.port are both 9402"),
    ({"extender": {"config": {"resources": [{"system": "fairlead"}]}}}, "resources[0]: system fairlead needs resource"),
    ({"extender": {"config": {"resources": [{"system": "hami"}]}}}, "'gpushare', 'volcano', 'doslab', 'fairlead'"),
]


@pytest.mark.parametrize(("values", "text"), WRONG, ids=[text for _, text in WRONG])
def test_a_mistake_is_named_with_its_cure(values: dict[str, Any], text: str):
    with pytest.raises(HelmError) as refused:
        helm.template(values)
    assert text in str(refused.value)


@pytest.mark.parametrize("skip", [False, True], ids=["schema", "without schema"])
@pytest.mark.parametrize(
    ("values", "key", "known"),
    [
        ({"migStrategi": "none"}, "migStrategi", "migStrategy"),
        ({"namespace": "x"}, "namespace", "namespaceOverride"),
        ({"gfd": {"enable": True}}, "enable", "enableHostNetwork"),
        ({"metrics": {"podMonitor": {"on": True}}}, "on", "interval"),
    ],
    ids=["top", "namespace", "below", "deep"],
)
def test_an_unknown_key_is_refused_with_those_that_are_known(values: dict[str, Any], key: str, known: str, skip: bool):
    with pytest.raises(HelmError) as refused:
        helm.template(values, *(["--skip-schema-validation"] if skip else []))
    assert key in str(refused.value)
    assert known in str(refused.value)


def test_the_default_namespace_is_refused_unless_it_is_wanted():
    with pytest.raises(HelmError, match="allowDefaultNamespace"):
        helm.template(namespace="default")
    assert helm.objects({"allowDefaultNamespace": True}, namespace="default")


def test_the_schema_describes_every_key():
    def undescribed(node: Any, path: str = "") -> list[str]:
        found = [] if node.get("description") or not path else [path]
        for key, below in node.get("properties", {}).items():
            found += undescribed(below, f"{path}.{key}")
        return found

    assert undescribed(render.schema()) == []


def strategy(values: dict[str, Any]) -> tuple[Any, bool]:
    """How the plugin's pods are replaced, and whether the new one takes over."""
    plugin = daemon_set(helm.objects(values))
    return plugin["spec"]["updateStrategy"].get("rollingUpdate"), "FAIRLEAD_TAKE_OVER" in env(main_container(plugin))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ({"maxSurge": 1, "maxUnavailable": 0}, True)),
        (
            {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}}},
            ({"maxSurge": "10%", "maxUnavailable": 0}, True),
        ),
        ({"takeOver": False}, ({"maxUnavailable": 1}, False)),
        ({"probes": {"enabled": False}}, ({"maxUnavailable": 1}, False)),
        ({"devicePlugin": {"enableHostNetwork": True}}, ({"maxUnavailable": 1}, False)),
        ({"updateStrategy": {"type": "OnDelete"}}, (None, False)),
    ],
    ids=["by default", "with a pace", "turned off", "without probes", "on the host's network", "on delete"],
)
def test_the_new_pod_takes_over_where_it_can(values: dict[str, Any], expected: tuple[Any, bool]):
    assert strategy(values) == expected
