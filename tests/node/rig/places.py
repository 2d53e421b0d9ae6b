"""Where the node keeps its things, what it is called and which ports it listens on. All on loopback, all its own.

NODE_STATE names another state directory. Nodes with different ones run side by side: every name comes from it. Each
worker of pytest has a node of its own.
"""

from __future__ import annotations

import functools
import json
import os
import random
import socket
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

NODE = "fairlead-node"
USUAL = Path("/var/lib/fairlead-node")
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
# Short, because a socket's path may have 107 bytes.
STATE = Path(os.environ.get("NODE_STATE") or (f"/var/lib/fl-{_WORKER}" if _WORKER else USUAL)).resolve()
_KEY = zlib.crc32(str(STATE).encode())
NAME = NODE if STATE == USUAL else f"{NODE}-{_KEY:08x}"  # of the cgroup, the network and the lock
LOCK = Path("/run/lock") / NAME  # stays: removing it would let two hold it
MARK = STATE / "this-is-a-node"  # a state directory is emptied: it must be one
LOGS = STATE / "logs"
BIN = STATE / "bin"  # links to the programs, so that a later command finds the same ones
PIDS = STATE / "pids"
PODS = STATE / "pods"  # what containers print
CERTS = STATE / "certs"
CONFIG = STATE / "config"
CNI = STATE / "cni"
VENDOR_RUNTIME = STATE / "vendor-runtime"  # a program that a test may put there; see tests/node/vendor.py
RUN = STATE / "run"
CONTAINERD = RUN / "containerd.sock"
KUBECONFIG = CONFIG / "admin.kubeconfig"

# The kubelet's device-plugin directory is fixed in its code. The node has a /var/lib of its own (see house.py):
# inside, the kubelet's directory has its usual name; from outside, it is reached here.
INSIDE = Path("/var/lib/kubelet")
LIB = STATE / "lib"
KUBELET = LIB / "kubelet"
PLUGINS = KUBELET / "device-plugins"
POD_RESOURCES = KUBELET / "pod-resources" / "kubelet.sock"

HOST = "127.0.0.1"
PORTS_FILE = STATE / "ports.json"
CHOICE = range(20000, 32000)  # below those that the system lends to whoever connects
PODS_RANGE = f"10.213.{_KEY % 256}.0/24"
SERVICES_RANGE = f"10.214.{_KEY % 256}.0/24"
API_IN_PODS = f"10.214.{_KEY % 256}.1"  # the API server's, by the Service that every cluster has; see door.py

# Names without a registry: nothing is ever pulled.
IMAGE = "localhost/fairlead-node/busybox:1"
PAUSE_IMAGE = "localhost/fairlead-node/pause:1"


@dataclass(frozen=True, slots=True)
class Ports:
    etcd: int
    etcd_peer: int
    api: int
    kubelet: int
    kubelet_health: int


def choose_ports() -> None:
    """Free ones, written down for later commands."""
    chance = random.SystemRandom()
    chosen: set[int] = set()
    while len(chosen) < len(Ports.__slots__):
        port = chance.choice(CHOICE)
        if _is_free(port):
            chosen.add(port)
    PORTS_FILE.write_text(json.dumps(asdict(Ports(*chosen))))
    ports.cache_clear()


@functools.cache
def ports() -> Ports:
    return Ports(**json.loads(PORTS_FILE.read_text()))


def api_address() -> str:
    return f"https://{HOST}:{ports().api}"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))  # the kubelet listens on every address
        except OSError:
            return False
    return True
