"""Where the node keeps its things, and which ports it listens on. All on loopback, all its own."""

from __future__ import annotations

from pathlib import Path

NODE = "fairlead-node"
# Short, because a socket's path may have 107 bytes.
STATE = Path("/var/lib/fairlead-node")
RUN = Path("/run/fairlead-node")
LOCK = Path("/run/lock/fairlead-node")  # stays: removing it would let two hold it
LOGS = STATE / "logs"
BIN = STATE / "bin"  # links to the programs, so that a later command finds the same ones
PIDS = STATE / "pids"
PODS = STATE / "pods"  # what containers print
CERTS = STATE / "certs"
CONFIG = STATE / "config"
CNI = STATE / "cni"
# The kubelet's device-plugin directory is fixed in its code, so its root is too.
KUBELET = Path("/var/lib/kubelet")
OURS = KUBELET / ".fairlead-node"  # marks the directory as made by this rig
PLUGINS = KUBELET / "device-plugins"
POD_RESOURCES = KUBELET / "pod-resources" / "kubelet.sock"
CONTAINERD = RUN / "containerd.sock"
KUBECONFIG = CONFIG / "admin.kubeconfig"

HOST = "127.0.0.1"
ETCD_PORT = 23790
ETCD_PEER_PORT = 23800
API_PORT = 26443
KUBELET_PORT = 20250
KUBELET_HEALTH_PORT = 20248
PORTS = (ETCD_PORT, ETCD_PEER_PORT, API_PORT, KUBELET_PORT, KUBELET_HEALTH_PORT)
API = f"https://{HOST}:{API_PORT}"
PODS_RANGE = "10.213.0.0/24"
SERVICES_RANGE = "10.214.0.0/24"

# Names without a registry: nothing is ever pulled.
IMAGE = "localhost/fairlead-node/busybox:1"
PAUSE_IMAGE = "localhost/fairlead-node/pause:1"
