"""A simulated NVIDIA driver: a real `libnvidia-ml.so.1`, compiled from `c/`, that answers what a script tells it.

Owns the library, its script and the files that a driver leaves around it. Must not know Fairlead nor any other plugin:
nvidia-ml-py and NVIDIA's own programs load it as they load the real one.

    driver = Driver(gpus=gpus("H100", 8))
    with driver.installed(tmp_path) as node:
        program(env=node.env)                    # LD_LIBRARY_PATH and FAIRLEAD_NVML, for a child process
        with node.loaded() as nvml: ...          # nvidia-ml-py itself, in this process
        node.root / "dev/nvidia0"                # /dev, /proc/driver, /sys/bus/pci of that machine
        node.xid(3, 79)                          # an event, to every event set that listens
        node.lose(3); node.find(3)               # off the bus, and back
        node.fault("nvmlDeviceGetName", 999, gpu=1); node.slow(...); node.hang(...); node.mend()
        node.become(other_driver)                # hot-plug, MIG re-partition

As with the real library, which GPUs there are is settled when nvmlInit raises the reference count from 0; MIG
instances, memory and counters are read anew in each call. A GPU that left the script is lost for who still holds it.
"""

from __future__ import annotations

from tests.nvml.driver import Driver
from tests.nvml.models import gpus
from tests.nvml.node import Node
from tests.nvml.recorded import from_recording
from tests.nvml.values import Gpu, Link, Mig, Profile

__all__ = ["Driver", "Gpu", "Link", "Mig", "Node", "Profile", "from_recording", "gpus"]
