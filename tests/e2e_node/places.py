"""Where the nodes of the suite keep their things. Each node has a number, and nothing outside of its own directory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
STATE = Path("/var/lib/fairlead-e2e")
LOCK = Path("/run/lock/fairlead-e2e")  # stays: removing it would let two hold it
CGROUPS = Path("/sys/fs/cgroup")
GROUP = "fairlead-e2e"

# The kubelet, the network plugins and the suite fix these places. A node mounts its own there.
POINTS = tuple(map(Path, ("/var/lib/kubelet", "/var/lib/cni", "/var/log")))
HIDDEN = tuple(map(Path, ("/run", "/tmp")))
MADE = STATE / "made"  # the mount points that were not there before

# Inside a node. Its mount namespace makes these its own.
CONTAINERD = Path("/run/containerd/containerd.sock")
CDI = Path("/var/run/cdi")
UNITS = Path("/run/units")
NODE = "node1"


@dataclass(frozen=True, slots=True)
class Place:
    """What one node may write to."""

    name: str

    @property
    def root(self) -> Path:
        return STATE / self.name

    @property
    def bin(self) -> Path:
        return self.root / "bin"  # first in the suite's PATH

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def work(self) -> Path:
        return self.root / "work"  # where the suite runs: it leaves files in its directory

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def results(self) -> Path:
        return self.reports / "results.json"

    @property
    def order(self) -> Path:
        return self.root / "order.json"

    def groups(self) -> list[Path]:
        """Its cgroups, one per hierarchy."""
        return [top / GROUP / self.name for top in hierarchies()]


def hierarchies() -> list[Path]:
    """Where cgroups are mounted on this machine: one place, or one for each controller."""
    found = re.findall(r"^\S+ (\S+) cgroup2? ", Path("/proc/self/mounts").read_text(), re.MULTILINE)
    return [Path(place) for place in found if Path(place).is_relative_to(CGROUPS)]
