"""Finding one's way in rendered objects, and the values that tests render."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.chart.render import ALONE, DIALECTS

Object = dict[str, Any]
MIXED = "version: v1\nflags:\n  migStrategy: mixed\n"
SLICED = "version: v1\nsharing:\n  timeSlicing:\n    resources: [{name: nvidia.com/gpu, replicas: 4}]\n"
MPS = "version: v1\nsharing:\n  mps:\n    resources: [{name: nvidia.com/gpu, replicas: 4}]\n"
MEMORY = {"system": "fairlead", "resource": "example.com/gpu-memory", "policy": "spread"}
ASSIGN = {"device": "example.com/gpu", "time": "example.com/time", "done": "example.com/done"}

# One release for each thing that can be switched on.
CASES: Mapping[str, Mapping[str, Any]] = {
    **{name: {"dialect": name, **values} for name, values in DIALECTS.items()},
    "configs": {"config": {"map": {"default": SLICED, "mig": MIXED}}, "gfd": {"enabled": True}},
    "external configs": {"config": {"name": "theirs"}, "gfd": {"enabled": True, "toNode": True}},
    "mps": {"config": {"map": {"mps": MPS}}, "mps": {"enableHostPID": False, "enableHostNetwork": True}},
    "labels": {
        "gfd": {"enabled": True, "noTimestamp": True, "sleepInterval": 30},
        "nvidiaDriverRoot": "/run/nvidia/driver",
    },
    "labels alone": {"gfd": {"enabled": True}, "devicePlugin": {"enabled": False}},
    "mig": {"migStrategy": "mixed", "deviceListStrategy": "cdi-cri,envvar", "failOnInitError": False},
    "cpu manager": {"compatWithCPUManager": True, "runtimeClassName": "nvidia", "lenient": True},
    "gke, all": {"dialect": "gke", "gke": {"publishDriverVersion": True, "containerMetrics": True, "mps": True}},
    "gke, nothing": {"dialect": "gke", "gke": {"healthMonitoring": False}},
    "watched": {
        "metrics": {
            "podMonitor": {"enabled": True, "labels": {"team": "a"}},
            "serviceMonitor": {"enabled": True},
            "rules": {"enabled": True},
            "dashboard": {"enabled": True},
        },
        "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]},
        "web": {"enabled": True, "tokenSecret": {"name": "page"}},
    },
    "quiet": {"probes": {"enabled": False}, "metrics": {"enabled": False}, "networkPolicy": {"enabled": True}},
    "elsewhere": {"kubelet": {"rootDir": "/var/lib/k0s/kubelet"}, "devicePlugin": {"enableHostNetwork": True}},
    "cluster": {
        "dialect": "fairlead",
        "fairlead": {
            "config": {
                "backends": [
                    {"kind": "nvidia", "mig": "mixed", "ways": ["cdi-cri"], "driverRoot": "/run/nvidia/driver"}
                ],
                "rules": [{"resource": "nvidia.com/gpu"}],
                "cluster": {"condition": {"type": "Ill", "codes": ["*"]}, "events": {"reason": "Ill"}},
                "amounts": [{"resource": "example.com/core", "perDevice": 100}],
            }
        },
    },
    "everything of the host": {
        "dialect": "fairlead",
        "fairlead": {
            "config": {
                "backends": [{"kind": "amd"}, {"kind": "sim"}],
                "rules": [{"resource": "amd.com/gpu"}],
                "kubelet": {"registration": "watcher"},
            }
        },
        "hostPaths": ["/opt/devices"],
    },
    "own configs": {
        "dialect": "fairlead",
        "fairlead": {
            "config": {"backends": [{"kind": "sim"}], "rules": [{"resource": "example.com/gpu"}]},
            "configs": {
                "amd": {"backends": [{"kind": "amd"}], "rules": [{"resource": "amd.com/gpu"}]},
                "core": {
                    "backends": [{"kind": "nvidia"}],
                    "rules": [{"resource": "nvidia.com/gpu"}],
                    "amounts": [{"resource": "example.com/core", "perDevice": 100}],
                },
            },
        },
    },
    "own ConfigMap by label": {
        "dialect": "fairlead",
        "fairlead": {"existingConfigMap": "mine", "label": "example.com/config"},
    },
    "own ConfigMap": {
        "dialect": "fairlead",
        "fairlead": {"existingConfigMap": "mine"},
        "rbac": {"features": ["assign.nodeLock"]},
    },
    "extender": {"dialect": "gpushare", "extender": {"enabled": True}},
    "extender, all": {
        **ALONE,
        "networkPolicy": {"enabled": True},
        "metrics": {"port": 9000},
        "extender": {
            "enabled": True,
            "config": {"resources": [MEMORY], "wake": False, "nodes": 0},
            "port": 12345,
            "service": {"type": "NodePort", "nodePort": 32766},
            "tls": {"secretName": "certificates", "clients": True},
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
            "affinity": {"nodeAffinity": {}},
            "resources": {"limits": {"memory": "400Mi"}},
            "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        },
    },
    "second scheduler": {
        **ALONE,
        "networkPolicy": {"enabled": True},
        "extender": {
            "enabled": True,
            "replicas": 2,
            "port": 4000,
            "config": {"resources": [{"system": "volcano"}, MEMORY]},
            "scheduler": {"enabled": True, "name": "packed", "args": ["-v=2"], "resources": {"limits": {"cpu": "1"}}},
        },
    },
}


def of_kind(objects: Iterable[Object], kind: str) -> list[Object]:
    return [one for one in objects if one["kind"] == kind]


def workloads(objects: Iterable[Object]) -> list[Object]:
    return [one for one in objects if one["kind"] in {"DaemonSet", "Deployment"}]


def deployment(objects: Iterable[Object]) -> Object:
    (found,) = of_kind(objects, "Deployment")
    return found


def component(one: Object) -> str:
    return str(one["metadata"]["labels"]["app.kubernetes.io/component"])


def daemon_set(objects: Iterable[Object], name: str = "plugin") -> Object:
    (found,) = [one for one in of_kind(objects, "DaemonSet") if component(one) == name]
    return found


def pod(one: Object) -> Object:
    spec: Object = one["spec"]["template"]["spec"]
    return spec


def main_container(one: Object) -> Object:
    """The program itself: the last one, behind those that manage its configuration."""
    container: Object = pod(one)["containers"][-1]
    return container


def at(one: Any, path: str) -> Any:
    """What is there, by words: a key, or the name of an entry of a list. None: nothing is."""
    for word in path.split():
        named = {entry["name"]: entry for entry in one} if isinstance(one, list) else one
        one = (named or {}).get(word)
    return one


def env(container: Object) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container.get("env", ())}


def granted(objects: Iterable[Object], name: str) -> set[tuple[str, str, str]]:
    """Group, resource and verb of all roles of a component."""
    return {
        (group, resource, verb)
        for one in objects
        if one["kind"] in {"Role", "ClusterRole"} and component(one) == name
        for rule in one["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
