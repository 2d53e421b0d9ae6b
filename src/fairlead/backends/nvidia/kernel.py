"""What the kernel says beside NVML: minor numbers of MIG capabilities, NUMA nodes, and what marks a change of GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from fairlead.kit.hostroot import HostRoot

_NUMA_NODE = re.compile(r"[+-]?[0-9]{1,9}")  # no machine has more: the kernel's own limit is 1024
_MIG_MINOR = re.compile(r"gpu(\d+)/gi(\d+)/(?:ci(\d+)/)?access (\d+)")

Names = dict[str, frozenset[str]]  # by directory
Caps = dict[tuple[int, int, int | None], int]  # (GPU minor, GPU instance, compute instance or None) to minor number


def parse_mig_minors(text: str) -> Caps:
    """The driver's table. Lines that are not of instances, or that make no sense, are passed over."""
    caps: Caps = {}
    for line in text.splitlines():
        if match := _MIG_MINOR.fullmatch(line.strip()):
            gpu, gi, ci, minor = match.groups()
            caps[int(gpu), int(gi), None if ci is None else int(ci)] = int(minor)
    return caps


def read_mig_minors(root: str) -> Caps:
    return parse_mig_minors(HostRoot(root).read("/proc/driver/nvidia-caps/mig-minors") or "")


def sysfs_bus_id(bus_id: str) -> str:
    """NVML's `00000000:3B:00.0` as sysfs has it: `0000:3b:00.0`."""
    return bus_id.lower().removeprefix("0000")


def read_numa(root: str, bus_id: str) -> int | None:
    """The NUMA node of a PCI device. ValueError for what is no node's number; None where it is not known."""
    text = HostRoot(root).read(f"/sys/bus/pci/devices/{bus_id}/numa_node")
    if text is None:
        return None
    if not _NUMA_NODE.fullmatch(text):
        raise ValueError(text)
    node = int(text)
    return None if node < 0 else node


class KernelFingerprint:
    """A cheap look at what the kernel shows of GPUs. A different one: NVML must start anew to see what is there.

    Starting NVML anew is not done at each scan. On a host without the persistence daemon the last one to leave switches
    the GPUs off, and the next waits seconds for them.
    """

    def __init__(self, root: str) -> None:
        self._root = HostRoot(root)

    def read(self) -> frozenset[str]:
        """Empty where the kernel shows nothing, as on WSL."""
        root = self._root
        found = {f"gpu {name}" for name in root.names("/proc/driver/nvidia/gpus")}
        found |= {f"pci {name}" for name in root.names("/sys/bus/pci/drivers/nvidia") if ":" in name}
        # The capabilities of MIG instances: the driver makes some for each instance.
        caps = Path(root.outside("/proc/driver/nvidia/capabilities"))
        found |= {f"cap {path}" for path in caps.glob("gpu*/mig/gi*/**/access")}
        version = root.read("/sys/module/nvidia/version")
        return frozenset({*found, f"version {version}"} if version and found else found)


def list_names(directories: Iterable[str]) -> Names:
    """The files in some directories that are NVIDIA's by their name; none where there is no directory."""
    root = HostRoot()
    return {path: frozenset(name for name in root.names(path) if "nvidia" in name) for path in directories}
