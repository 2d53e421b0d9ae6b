"""How a kubelet is built. Every part of a process reads what it needs here. Values only."""

import random
from dataclasses import dataclass
from pathlib import Path

from fairlead.standin import topology
from fairlead.standin.calls import Calls
from fairlead.standin.changes import Changes
from fairlead.standin.clock import Clock, Timings
from fairlead.standin.faults import Callbacks, Defects, Faults


@dataclass(frozen=True, slots=True)
class Setup:
    """How this kubelet is built; the same for each of its lives."""

    root: Path
    clock: Clock
    timings: Timings
    defects: Defects
    faults: Faults
    callbacks: Callbacks
    policy: topology.Policy
    numa_nodes: tuple[int, ...]
    rate_limit: bool
    rng: random.Random
    changes: Changes
    calls: Calls

    @property
    def plugin_dir(self) -> Path:
        return self.root / "device-plugins"

    @property
    def registry_dir(self) -> Path:
        return self.root / "plugins_registry"

    @property
    def podresources_dir(self) -> Path:
        return self.root / "pod-resources"
