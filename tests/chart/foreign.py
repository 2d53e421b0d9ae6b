"""The values of other systems' charts, by their keys. Facts about them, not their files."""

from __future__ import annotations

from typing import Any

# The keys of NVIDIA's chart 0.20.0, each with its default.
NVIDIAS: dict[str, Any] = {
    "config": {"name": "", "map": {}, "default": "", "fallbackStrategies": ["named", "single"]},
    **dict.fromkeys(("compatWithCPUManager", "migStrategy", "failOnInitError", "deviceListStrategy")),
    **dict.fromkeys(("deviceIDStrategy", "nvidiaDriverRoot", "gdrcopyEnabled", "gdsEnabled", "mofedEnabled")),
    "deviceDiscoveryStrategy": None,
    "nameOverride": "",
    "fullnameOverride": "",
    "namespaceOverride": "",
    "selectorLabelsOverride": {},
    "allowDefaultNamespace": False,
    "imagePullSecrets": [],
    "image": {"repository": "example.com/fairlead", "pullPolicy": "IfNotPresent", "tag": ""},
    "updateStrategy": {"type": "RollingUpdate"},
    "podAnnotations": {},
    "podSecurityContext": {},
    "securityContext": {},
    "resources": {},
    "nodeSelector": {},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
                    for key, value in (
                        ("feature.node.kubernetes.io/pci-10de.present", "true"),
                        ("feature.node.kubernetes.io/cpu-model.vendor_id", "NVIDIA"),
                        ("nvidia.com/gpu.present", "true"),
                    )
                ]
            }
        }
    },
    "tolerations": [
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ],
    "priorityClassName": "system-node-critical",
    "runtimeClassName": None,
    "devicePlugin": {"enabled": True, "enableHostNetwork": False},
    "gfd": {
        "enabled": False,
        "nameOverride": "gpu-feature-discovery",
        "namespaceOverride": "",
        "noTimestamp": None,
        "sleepInterval": None,
        "securityContext": {"privileged": True},
        "enableHostNetwork": False,
    },
    "nfd": {"enabled": None, "nameOverride": "node-feature-discovery", "worker": {"config": {"sources": {}}}},
    "mps": {"root": "/run/nvidia/mps", "enableHostPID": True, "enableHostNetwork": False},
    "cdi": {"nvidiaHookPath": None, "featureFlags": None},
}
# AMD's chart 0.21.0, below our key `amd`.
AMDS: dict[str, Any] = {
    "nfd": {"enabled": False},
    "labeller": {"enabled": True},
    "dp": {
        "image": {"repository": "example.com/dp", "tag": "1"},
        "resources": {},
        "updateStrategy": {"type": "OnDelete"},
    },
    "lbl": {
        "image": {"repository": "example.com/lbl", "tag": "2"},
        "serviceAccount": {"annotations": {"example.com/a": "b"}},
        "securityContext": {"privileged": True},
        "resources": {},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
    },
    "imagePullSecrets": [],
    "securityContext": {"allowPrivilegeEscalation": False},
    "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
    "node_selector_enabled": True,
    "node_selector": {"feature.node.kubernetes.io/pci-0300_1002.present": "true", "kubernetes.io/arch": "amd64"},
}
