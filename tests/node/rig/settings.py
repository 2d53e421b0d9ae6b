"""The node's configuration files. Every value that is not a default has its reason here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.node.rig import certificates
from tests.node.rig.places import (
    CNI,
    CONFIG,
    CONTAINERD,
    NAME,
    PAUSE_IMAGE,
    PODS,
    PODS_RANGE,
    RUN,
    SERVICES_RANGE,
    STATE,
    VENDOR_RUNTIME,
    api_address,
    ports,
)

CDI = STATE / "cdi"  # specs of devices that the runtime itself puts into containers


def write(shim: Path) -> None:
    CDI.mkdir(exist_ok=True)
    (CONFIG / "containerd.toml").write_text(_containerd(shim))
    _json(CNI / "10-fairlead-node.conflist", _network())
    change_kubelet()
    for name in certificates.CLIENTS:
        _json(CONFIG / f"{name}.kubeconfig", _kubeconfig(name))


def change_kubelet(**changes: Any) -> None:
    """What a kubelet that starts from now on does otherwise. Without changes: nothing."""
    _json(CONFIG / "kubelet.json", {**_kubelet(), **changes})


def _json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1))


def _containerd(shim: Path) -> str:
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE every sandbox would fail.
    # nvidia: the name that NVIDIA's documents give its runtime. What it is here, tests/node/vendor.py says.
    return f"""\
version = 3
root = "{STATE}/containerd"
state = "{RUN}/containerd"
[grpc]
address = "{CONTAINERD}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE_IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
enable_cdi = true
cdi_spec_dirs = ["{CDI}"]
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{CNI}"
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
runtime_path = "{shim}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
Root = "{RUN}/runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
runtime_path = "{shim}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
SystemdCgroup = false
Root = "{RUN}/runc"
BinaryName = "{VENDOR_RUNTIME}"
[plugins.'io.containerd.internal.v1.opt']
path = "{STATE}/opt"
"""


def _network() -> dict[str, Any]:
    addresses: dict[str, Any] = {"type": "host-local", "dataDir": str(STATE / "addresses")}
    # Pods have a way to the addresses of Services, and to no others.
    addresses |= {"ranges": [[{"subnet": PODS_RANGE}]], "routes": [{"dst": SERVICES_RANGE}]}
    return {"cniVersion": "1.0.0", "name": NAME, "plugins": [{"type": "ptp", "ipam": addresses}]}


def _kubelet() -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",  # the node's address is not loopback, and `kubectl logs` goes there
        "port": ports().kubelet,
        "healthzPort": ports().kubelet_health,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
        "podLogsDir": str(PODS),
        "volumePluginDir": str(STATE / "volume-plugins"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": certificates.file("ca", "crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        # The default is 10 s. What a test waits for should be the plugin, not the kubelet's timer.
        "nodeStatusUpdateFrequency": "1s",
        # The default since 1.36. An older kubelet does not tell the health of devices unless it is asked to.
        "featureGates": {"ResourceHealthStatus": True},
        # A small machine with cgroup v1 and no systemd is enough, and its firewall is left alone.
        "failCgroupV1": False,
        "makeIPTablesUtilChains": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{NAME}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "evictionHard": {"memory.available": "10Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,  # the images cannot be pulled again
    }


def _kubeconfig(name: str) -> dict[str, Any]:
    who = {
        "client-certificate": certificates.file(name, "crt"),
        "client-key": certificates.file(name, "key"),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "node",
                "cluster": {"server": api_address(), "certificate-authority": certificates.file("ca", "crt")},
            }
        ],
        "users": [{"name": name, "user": who}],
        "contexts": [{"name": "node", "context": {"cluster": "node", "user": name}}],
        "current-context": "node",
    }
