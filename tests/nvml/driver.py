"""The driver as a value: its GPUs, what lies between them, and the files that it would leave on a machine.

Must not know how the files are made (root.py) nor how a running library is told of a change (node.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tests.nvml.values import Gpu, describe

if TYPE_CHECKING:
    from tests.nvml.node import Node

CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
DEBIAN_LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"


class Fault(msgspec.Struct, frozen=True):
    function: str  # without a version suffix; * for all
    code: int
    gpu: int = -1  # -1: every GPU


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    gpus: tuple[Gpu, ...] = ()
    driver_version: str = "580.65.06"
    cuda_version: int = 13000
    level_default: int = 50  # the PCI level between two GPUs that `levels` does not name: SYSTEM
    levels: tuple[tuple[int, int, int], ...] = ()  # of two said twice the last counts
    faults: tuple[Fault, ...] = ()

    library_path: str | None = DEBIAN_LIBRARY  # None: there is no library
    dev_nodes: tuple[str, ...] = CONTROL_NODES
    gpu_nodes: bool = True
    driver_root: str | None = None  # where the driver's own files lie, if not at /
    driver_root_has_dev: bool = False
    driver_root_has_caps: bool = True  # and in it the capability nodes of MIG
    driver_files: tuple[str, ...] = ()  # lib/NAME: beside the library; NAME -> TARGET: a symbolic link
    files: dict[str, str] = {}
    machine: str = "Simulated Machine"
    mig_minors: bool = True  # whether /proc/driver/nvidia-caps/mig-minors is there
    wsl: bool = False
    sysfs: bool = True

    def installed(self, directory: Path) -> AbstractContextManager[Node]:
        from tests.nvml.node import install  # here: a node is made of a driver, and may become another

        return install(self, directory)

    def script(self) -> str:
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"driver_version {self.driver_version}"
        yield f"nvml_version 12.{self.driver_version}"
        yield f"cuda_version {self.cuda_version}"
        yield f"level_default {self.level_default}"
        yield from (f"level {a} {b} {level}" for a, b, level in self.levels)
        yield from (f"fault {fault.function} {fault.code} {fault.gpu}" for fault in self.faults)
        for gpu in self.gpus:
            yield from describe(gpu)

    def minors(self) -> dict[str, int]:
        """The capability nodes of MIG: what they allow, and their minor number. The numbers are the real driver's."""
        found = {"config": 1, "monitor": 2}
        for gpu in self.gpus:
            for mig in gpu.migs if gpu.mig_current else ():
                first = 3 + 135 * gpu.minor + 9 * mig.gi
                found[f"gpu{gpu.minor}/gi{mig.gi}/access"] = first
                found[f"gpu{gpu.minor}/gi{mig.gi}/ci{mig.ci}/access"] = first + 1 + mig.ci
        return found
