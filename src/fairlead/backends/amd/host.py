"""What the kernel shows of AMD GPUs: PCI functions of the driver, partitions as platform devices, the KFD topology.

Blocking: runs on the owner thread. What is wrong with one device costs that device, or one fact of it, and is named.
"""

from __future__ import annotations

import re

from msgspec import Struct

from fairlead.backends.amd import sysfs
from fairlead.backends.amd.topology import NODES, Topology, read_topology
from fairlead.kit.hostroot import HostRoot
from fairlead.model.errors import BackendError, NotYet

DRIVER = "/sys/module/amdgpu/drivers/pci:amdgpu"
PLATFORM = "/sys/devices/platform"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_XCP = re.compile(r"amdgpu_xcp_(\d{1,9})")
_DRM = re.compile(r"(card|renderD)(\d{1,9})")
_PARTITION = re.compile(r"[a-z0-9]{1,16}")
_NUMA = re.compile(r"-1|[0-9]{1,3}|10[01][0-9]|102[0-3]")  # the kernel knows 1024 nodes at most


class DrmNodes(Struct, frozen=True):
    """A PCI function or a partition, by its nodes below /dev/dri."""

    id: str
    render: int
    card: int | None = None


class PciFunction(Struct, frozen=True):
    drm: DrmNodes
    numa: int | None = None
    compute: str = ""
    memory: str = ""
    device: str = ""
    product: str = ""
    serial: str = ""
    vram_bytes: int = 0


class Host(Struct, frozen=True):
    functions: tuple[PciFunction, ...] = ()
    partitions: tuple[DrmNodes, ...] = ()  # beside the first of each GPU, which is the PCI function itself
    topology: Topology = Topology()
    problems: tuple[str, ...] = ()


def read_host(root: HostRoot, known: dict[str, str] | None = None) -> Host:
    """NotYet while there is no driver or no KFD: both may be loaded at any moment.

    `known`: facts as last read, which is kept up. One that cannot be read just now stands as it was: the kernel refuses
    to say how a GPU is cut while the GPU is being reset, and its partitions must not change their names for that.
    """
    facts = {} if known is None else known
    problems: list[str] = []
    functions = tuple(
        function
        for address in function_names(root)
        if (function := _function(root, address, facts, problems)) is not None
    )
    if functions and root.real(NODES) is None:
        why = "amdgpu has not brought up its compute driver (KFD). See the kernel's log"
        raise NotYet(f"{root.outside(NODES)} is missing: {why}")
    partitions = tuple(
        nodes
        for name in partition_names(root)
        if (nodes := _drm(root, f"{PLATFORM}/{name}", name, problems)) is not None
    )
    return Host(functions, partitions, read_topology(root), tuple(problems))


def function_names(root: HostRoot) -> list[str]:
    """Addresses of the PCI functions that the driver serves."""
    real = root.real(DRIVER)
    if real is None:
        why = "the kernel module amdgpu is not loaded. Load it, or mount the host's /sys"
        raise NotYet(f"{root.outside(DRIVER)} is missing: {why}")
    return sorted(name for name in _list(root, real) if _ADDRESS.fullmatch(name))


def partition_names(root: HostRoot) -> list[str]:
    found = (_XCP.fullmatch(name) for name in _list(root, PLATFORM))
    return [match[0] for match in sorted(filter(None, found), key=lambda match: int(match[1]))]


def fingerprint(root: HostRoot) -> frozenset[str]:
    """A cheap look: another one means that a GPU or a partition came, went or was cut anew."""
    try:
        functions = function_names(root)
    except NotYet:
        return frozenset()
    found = {f"kfd {name}" for name in root.names(NODES)} | {f"xcp {name}" for name in partition_names(root)}
    found.add(f"generation {root.read('/sys/class/kfd/kfd/topology/generation_id')}")
    for address in functions:
        cut = [root.read(f"{DRIVER}/{address}/current_{kind}_partition") or "" for kind in ("compute", "memory")]
        found.add(f"pci {address} {' '.join(cut)} {' '.join(root.names(f'{DRIVER}/{address}/drm'))}")
    return frozenset(found)


def _list(root: HostRoot, directory: str) -> list[str]:
    try:
        return sysfs.names(root.outside(directory))
    except OSError as error:
        raise BackendError(f"{directory}: {sysfs.why(error)}") from error


def _function(root: HostRoot, address: str, facts: dict[str, str], problems: list[str]) -> PciFunction | None:
    drm = _drm(root, f"{DRIVER}/{address}", address, problems)
    if drm is None:
        return None
    at = root.outside(root.real(f"{DRIVER}/{address}") or "")

    def text(name: str, shape: re.Pattern[str] | None = None) -> str:
        try:
            found = sysfs.text(f"{at}/{name}")
        except OSError as error:
            kept = facts.get(f"{address} {name}", "")
            how = "as before" if kept else "without"
            problems.append(f"{address}: {name}: {sysfs.why(error)}. It is offered {how}")
            return kept
        if shape is None or not found or shape.fullmatch(found.lower()):
            facts[f"{address} {name}"] = fit = found if found.isprintable() else ""
            return fit
        problems.append(f"{address}: {name} is {found!r:.60}, which makes no sense. It is offered without")
        return ""

    numa, vram = text("numa_node", _NUMA), text("mem_info_vram_total")
    return PciFunction(
        drm,
        None if numa in {"", "-1"} else int(numa),  # -1: the firmware does not say
        text("current_compute_partition", _PARTITION).lower(),
        text("current_memory_partition", _PARTITION).lower(),
        text("device"),
        text("product_name"),
        text("unique_id"),
        int(vram) if sysfs.is_number(vram) else 0,
    )


def _drm(root: HostRoot, directory: str, name: str, problems: list[str]) -> DrmNodes | None:
    """None, and a problem, for what has no render node: no container could use it."""
    real = root.real(f"{directory}/drm")
    found: dict[str, int] = {}
    reason = "it has no directory drm"
    try:
        for entry in sorted(sysfs.names(root.outside(real))) if real is not None else ():
            if match := _DRM.fullmatch(entry):
                found.setdefault(match[1], int(match[2]))
            reason = "there is no render node in its directory drm"
    except OSError as error:
        reason = f"drm: {sysfs.why(error)}"
    if "renderD" not in found:
        problems.append(f"{name} is left out: {reason}. The driver has not brought it up; see the kernel's log")
        return None
    return DrmNodes(name, found["renderD"], found.get("card"))
