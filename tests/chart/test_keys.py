"""Where values end up in the pods: names, places on the host, and what all pods have in common."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart import helm
from tests.chart.shapes import CASES, MPS, SLICED, Object, at, component, daemon_set, of_kind

POD = "spec template spec"
MAIN = f"{POD} containers fairlead"
LIMITS = {"limits": {"memory": "64Mi"}, "requests": {"cpu": "10m"}}
OTHERS = {"limits": {"memory": "128Mi"}}
PULL = [{"name": "registry"}]
CONFIG: dict[str, Any] = {"map": {"one": SLICED}, "fallbackStrategies": ["single", "empty"]}
LABELS: dict[str, Any] = {"gfd": {"enabled": True}, "config": CONFIG}
SHARED: dict[str, Any] = {"config": {"map": {"mps": MPS}}}
LABELLER: dict[str, Any] = {"labeller": {"enabled": True}}
AMD: dict[str, Any] = {"dialect": "amd"}
GKE: dict[str, Any] = {"dialect": "gke"}
OWN: dict[str, Any] = {
    "dialect": "fairlead",
    "fairlead": {"config": {"backends": [{"kind": "amd"}], "rules": [{"resource": "amd.com/gpu"}]}},
}
PAGE: dict[str, Any] = {"web": {"enabled": True, "tokenSecret": {"name": "page", "key": "word"}}}

# The values, whose DaemonSet, where in it, and what is there.
PLACES: list[tuple[dict[str, Any], str, str, Any]] = [
    ({"imagePullSecrets": PULL}, "plugin", f"{POD} imagePullSecrets", PULL),
    ({**LABELS, "imagePullSecrets": PULL}, "gfd", f"{POD} imagePullSecrets", PULL),
    ({**AMD, "imagePullSecrets": PULL}, "plugin", f"{POD} imagePullSecrets", PULL),
    (
        {**AMD, "imagePullSecrets": [{"name": "other"}], "amd": {"imagePullSecrets": PULL}},
        "plugin",
        f"{POD} imagePullSecrets",
        PULL,
    ),
    ({"fullnameOverride": "gpus"}, "plugin", "metadata name", "gpus"),
    ({"fullnameOverride": "gpus"}, "plugin", f"{POD} serviceAccountName", "gpus"),
    ({**LABELS, "fullnameOverride": "gpus"}, "gfd", "metadata name", "gpus-gpu-feature-discovery"),
    ({"nameOverride": "gpus"}, "plugin", "metadata name", "fairlead-gpus"),
    ({"nameOverride": "gpus"}, "plugin", "spec selector matchLabels app.kubernetes.io/name", "gpus"),
    ({"nameOverride": "gpus"}, "plugin", "spec template metadata labels app.kubernetes.io/name", "gpus"),
    ({"nameOverride": "gpus"}, "plugin", f"{POD} containers gpus name", "gpus"),
    ({"config": CONFIG}, "plugin", f"{MAIN} env FAIRLEAD_CONFIG_FALLBACKS value", "single,empty"),
    (LABELS, "gfd", f"{POD} containers config-manager env FALLBACK_STRATEGIES value", "single,empty"),
    ({"resources": LIMITS}, "plugin", f"{MAIN} resources", LIMITS),
    ({**LABELS, "resources": LIMITS}, "gfd", f"{POD} containers gpu-feature-discovery resources", LIMITS),
    ({**LABELS, "resources": LIMITS}, "gfd", f"{POD} containers config-manager resources", LIMITS),
    ({**LABELS, "resources": LIMITS}, "gfd", f"{POD} initContainers config-manager-init resources", LIMITS),
    ({**SHARED, "resources": LIMITS}, "mps", f"{POD} containers mps-control-daemon resources", LIMITS),
    ({**SHARED, "resources": LIMITS}, "mps", f"{POD} initContainers mount-shm resources", LIMITS),
    ({**AMD, "resources": LIMITS}, "plugin", f"{MAIN} resources", LIMITS),
    ({**AMD, "resources": OTHERS, "amd": {"dp": {"resources": LIMITS}}}, "plugin", f"{MAIN} resources", LIMITS),
    (
        {**AMD, "resources": OTHERS, "amd": {**LABELLER, "lbl": {"resources": LIMITS}}},
        "amd-labeller",
        f"{POD} containers node-labeller resources",
        LIMITS,
    ),
    ({"podAnnotations": {"a": "b"}}, "plugin", "spec template metadata annotations", {"a": "b"}),
    ({**LABELS, "podAnnotations": {"a": "b"}}, "gfd", "spec template metadata annotations", {"a": "b"}),
    ({"priorityClassName": "high"}, "plugin", f"{POD} priorityClassName", "high"),
    ({"priorityClassName": ""}, "plugin", f"{POD} priorityClassName", None),
    ({**AMD, "amd": {"exporterDir": "/srv/amd"}}, "plugin", f"{POD} volumes exporter hostPath path", "/srv/amd"),
    ({**OWN, "amd": {"exporterDir": "/srv/amd"}}, "plugin", f"{POD} volumes exporter hostPath path", "/srv/amd"),
    ({**GKE, "gke": {"driverDir": "/srv/driver"}}, "plugin", f"{POD} volumes driver hostPath path", "/srv/driver"),
    ({**GKE, "gke": {"configDir": "/srv/gpu"}}, "plugin", f"{POD} volumes gpu-config hostPath path", "/srv/gpu"),
    *(
        ({"dialect": "smarter", "hostPaths": ["/opt/a", "/opt/b"]}, "plugin", f"{POD} {path}", expected)
        for path, expected in (
            ("volumes host-0 hostPath path", "/opt/a"),
            ("volumes host-1 hostPath path", "/opt/b"),
            ("containers fairlead volumeMounts host-0 mountPath", "/host/opt/a"),
            ("containers fairlead volumeMounts host-1 mountPath", "/host/opt/b"),
            ("containers fairlead volumeMounts host-1 readOnly", True),
        )
    ),
    ({**OWN, "hostPaths": ["/opt/a"]}, "plugin", f"{POD} volumes host-0 hostPath path", "/opt/a"),
    (PAGE, "plugin", f"{POD} volumes page-token secret secretName", "page"),
    (PAGE, "plugin", f"{POD} volumes page-token secret items", [{"key": "word", "path": "token"}]),
    (PAGE, "plugin", f"{POD} volumes page-token secret defaultMode", 0o400),
    (PAGE, "plugin", f"{MAIN} volumeMounts page-token mountPath", "/etc/fairlead-page"),
    (PAGE, "plugin", f"{MAIN} volumeMounts page-token readOnly", True),
    (PAGE, "plugin", f"{MAIN} env FAIRLEAD_PAGE_TOKEN_FILE value", "/etc/fairlead-page/token"),
    ({"lenient": True}, "plugin", f"{MAIN} env FAIRLEAD_LENIENT value", "true"),
    (
        {**LABELS, "lenient": True},
        "gfd",
        f"{POD} containers gpu-feature-discovery env FAIRLEAD_LENIENT value",
        "true",
    ),
    ({**SHARED, "lenient": True}, "mps", f"{POD} containers mps-control-daemon env FAIRLEAD_LENIENT value", "true"),
]


def defaults(values: dict[str, Any], name: str) -> Object:
    """The same DaemonSet, as it is without what is asked for."""
    needed: dict[str, Any] = {key: values[key] for key in ("dialect", "fairlead") if key in values}
    needed |= {"gfd": {"gfd": {"enabled": True}}, "mps": SHARED, "amd-labeller": {"amd": LABELLER}}.get(name, {})
    return daemon_set(helm.objects(needed), name)


@pytest.mark.parametrize(
    ("values", "name", "path", "expected"), PLACES, ids=[f"{name} {path}" for _, name, path, _ in PLACES]
)
def test_a_value_is_found_where_it_belongs(values: dict[str, Any], name: str, path: str, expected: Any):
    assert at(daemon_set(helm.objects(values), name), path) == expected
    assert at(defaults(values, name), path) != expected


def test_a_name_of_ones_own_is_part_of_every_name():
    made = helm.objects({**CASES["second scheduler"], **CASES["configs"], "fullnameOverride": "gpus"})
    assert {one["metadata"]["name"].partition("-")[0] for one in made} == {"gpus"}
    assert {component(one) for one in made} >= {"plugin", "gfd", "extender"}


ROOT = "/var/lib/kubelet"
ELSEWHERE = CASES["elsewhere"]["kubelet"]["rootDir"]
KUBELETS: dict[str, tuple[dict[str, str], str, str]] = {
    "where it is by default": ({}, f"{ROOT}/device-plugins", ROOT),
    "with another root": ({"rootDir": ELSEWHERE}, f"{ROOT}/device-plugins", ELSEWHERE),
    "with another directory of plugins": ({"devicePluginDir": "/srv/plugins"}, "/srv/plugins", ROOT),
    "with both": ({"rootDir": ELSEWHERE, "devicePluginDir": "/srv/plugins"}, "/srv/plugins", ELSEWHERE),
}


@pytest.mark.parametrize("case", KUBELETS)
@pytest.mark.parametrize("dialect", ["nvidia", "gke", "everything of the host"])
def test_the_kubelet_is_found_on_the_host_and_at_the_same_place_in_the_pod(dialect: str, case: str):
    kubelet, plugins, root = KUBELETS[case]
    plugin = daemon_set(helm.objects({**CASES[dialect], "kubelet": kubelet}))
    hosts = {one["name"]: one["hostPath"]["path"] for one in at(plugin, f"{POD} volumes") if "hostPath" in one}
    mounts = {one["name"]: one["mountPath"] for one in at(plugin, f"{MAIN} volumeMounts")}
    assert hosts["device-plugins"] == plugins
    assert hosts["pod-resources"] == f"{root}/pod-resources"
    assert at(plugin, f"{MAIN} volumeMounts pod-resources readOnly") is True
    assert mounts["device-plugins"] == ("/device-plugin" if dialect == "gke" else f"{ROOT}/device-plugins")
    assert mounts["pod-resources"] == f"{ROOT}/pod-resources"
    if dialect == "everything of the host":  # its registration is by the watcher
        assert hosts["plugins-registry"] == f"{root}/plugins_registry"
        assert mounts["plugins-registry"] == f"{ROOT}/plugins_registry"


def test_every_daemon_set_has_a_place_in_the_table():
    """Who adds one says there where the values are in it."""
    made = [one for values in CASES.values() for one in of_kind(helm.objects(values), "DaemonSet")]
    assert {component(one) for one in made} == {name for _, name, _, _ in PLACES}
