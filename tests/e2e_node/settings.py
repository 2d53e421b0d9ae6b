"""What the programs of a node are told. Every value that is not a default has its reason here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e_node.images import PAUSE
from tests.e2e_node.places import CDI, CONTAINERD, NODE, Place

ADDRESS = "10.215.0.2/24"
GATEWAY = "10.215.0.1"  # nobody there: a node wants a default route, not a network
PODS_RANGE = "10.216.0.0/24"


def write(place: Place, shim: Path) -> None:
    config = place.config
    hosts = config / "registries" / "_default"
    for directory in (config, hosts, config / "cni"):
        directory.mkdir(parents=True, exist_ok=True)
    (config / "containerd.toml").write_text(_containerd(place, shim))
    # Whatever is not there shall be missed at once: this port is closed.
    (hosts / "hosts.toml").write_text('server = "http://127.0.0.1:1"\n')
    (config / "cni" / "10-e2e.conflist").write_text(json.dumps(_network(place)))
    (config / "kubelet.json").write_text(json.dumps(_kubelet(place), indent=1))


def names() -> dict[str, str]:
    """A kubelet looks its own name up when it starts, and would wait long for a name server that is not there."""
    address = ADDRESS.partition("/")[0]
    hosts = f"127.0.0.1 localhost\n{address} {NODE}\n"
    return {"/etc/hosts": hosts, "/etc/resolv.conf": "nameserver 127.0.0.1\n"}


def arguments(place: Place, focus: str) -> list[str]:
    """The suite's own flags."""
    return [
        f"--node-name={NODE}",
        f"--k8s-bin-dir={place.bin}",
        f"--kubelet-config-file={place.config / 'kubelet.json'}",
        f"--container-runtime-endpoint=unix://{CONTAINERD}",
        f"--report-dir={place.reports}",
        "--prepull-images=false",
        f"--ginkgo.focus={focus}",
        "--ginkgo.timeout=20m",
        "--ginkgo.no-color",
        "--ginkgo.v",
        f"--ginkgo.json-report={place.results}",
    ]


def _containerd(place: Place, shim: Path) -> str:
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE every sandbox would fail.
    return f"""\
version = 3
root = "{place.root}/containerd"
state = "/run/containerd/state"
[grpc]
address = "{CONTAINERD}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE}"
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = "{place.config}/registries"
[plugins.'io.containerd.cri.v1.runtime']
enable_cdi = true
cdi_spec_dirs = ["{CDI}"]
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{place.config}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
runtime_path = "{shim}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins.'io.containerd.internal.v1.opt']
path = "{place.root}/opt"
"""


def _network(place: Place) -> dict[str, Any]:
    addresses = {"type": "host-local", "ranges": [[{"subnet": PODS_RANGE}]], "dataDir": str(place.root / "addresses")}
    return {"cniVersion": "1.0.0", "name": "e2e", "plugins": [{"type": "ptp", "ipam": addresses}]}


def _kubelet(place: Place) -> dict[str, Any]:
    """Upstream's default for these tests (test/e2e_node/jenkins), and what a machine without systemd needs."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "podCIDR": "10.100.0.0/24",
        "volumeStatsAggPeriod": "10s",
        "fileCheckFrequency": "10s",
        "serializeImagePulls": False,
        "volumePluginDir": str(place.root / "volume-plugins"),  # the default is in /usr, where it does not belong to us
        # Small: it is the developer's disk, and not the subject.
        "evictionHard": {"memory.available": "10Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,  # the images cannot be pulled again
        "failCgroupV1": False,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": ["none"],  # an empty list does not survive the suite, which writes this file anew
        "failSwapOn": False,
    }
