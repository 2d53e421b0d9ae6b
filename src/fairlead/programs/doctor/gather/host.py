"""Reads what the kernel and the files of the host show: the bus, modules, device nodes, special hosts. Blocking."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fairlead.backends.nvidia.hostnodes import NodeFacts, read_node
from fairlead.backends.nvidia.library import DIRECTORIES
from fairlead.kit import files
from fairlead.kit.hostroot import HostRoot
from fairlead.programs.doctor.facts import (
    DevFiles,
    Missing,
    Node,
    NvidiaFiles,
    PciDevice,
    Selinux,
    SpecialHost,
    Xid,
)
from fairlead.programs.doctor.gather.limits import LOG_MAX_BYTES, PCI_MAX, XIDS_MAX

PCI = "/sys/bus/pci/devices"
VENDORS = frozenset({"10de", "1002"})
DEV_PATTERNS = ("/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/kfd", "/dev/dri/*", "/dev/dxg")
MOUNT_IT = "mount the host's files and name their directory with --host-root, or run it on the host"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NUMA = re.compile(r"-?[0-9]{1,4}")
_NODE = re.compile(r"node[0-9]{1,4}")
_MAJOR = re.compile(r"\s*([0-9]{1,6}) (\S{1,64})")
_KERNEL = re.compile(r"Kernel Module\D{0,64}(\d{1,6}(?:\.\d{1,6}){1,3})")
_XID = re.compile(rb"NVRM: Xid \(PCI:([0-9a-fA-F:.]{1,16})\): ([0-9]{1,6})")
ALL_ONES = b"\xff\xff\xff\xff"


def read_pci(root: HostRoot) -> tuple[PciDevice, ...] | Missing:
    """Devices of the vendors that the checks know."""
    if root.real(PCI) is None:
        return Missing(f"{root.outside(PCI)} is not there: {MOUNT_IT}")
    names = [name for name in root.names(PCI) if _ADDRESS.fullmatch(name)]
    found = (_pci_device(root, name) for name in names[:PCI_MAX])
    return tuple(device for device in found if device is not None)


def _pci_device(root: HostRoot, address: str) -> PciDevice | None:
    base = f"{PCI}/{address}"
    vendor = (root.read(f"{base}/vendor") or "").removeprefix("0x").lower()
    if vendor not in VENDORS:
        return None
    kind = (root.read(f"{base}/class") or "").removeprefix("0x")[:4].lower()
    driver = root.real(f"{base}/driver")
    numa = root.read(f"{base}/numa_node") or ""
    node = int(numa) if _NUMA.fullmatch(numa) else -1
    return PciDevice(
        address,
        vendor,
        kind,
        driver.rpartition("/")[2] if driver else "",
        node if node >= 0 else None,
        _head(root, f"{base}/config") != ALL_ONES,
    )


def _head(root: HostRoot, path: str) -> bytes:
    """The first four bytes of a file of sysfs; none where it cannot be read. The rest of it may have side effects."""
    real = root.real(path)
    if real is None:
        return b""
    try:
        files.check(root.outside(real), files.SMALL_BYTES)
        with Path(root.outside(real)).open("rb", buffering=0) as file:
            return file.read(len(ALL_ONES))
    except OSError:
        return b""


def count_numa(root: HostRoot) -> int | Missing:
    base = "/sys/devices/system/node"
    found = sum(_NODE.fullmatch(name) is not None for name in root.names(base))
    return found or Missing(f"{root.outside(base)} names no NUMA node: {MOUNT_IT}")


def read_modules(root: HostRoot) -> frozenset[str] | Missing:
    names = root.names("/sys/module")
    return frozenset(names) if names else Missing(f"{root.outside('/sys/module')} is not there: {MOUNT_IT}")


def read_majors(root: HostRoot) -> Mapping[str, int] | Missing:
    text = root.read("/proc/devices")
    if text is None:
        return Missing(f"{root.outside('/proc/devices')} cannot be read: {MOUNT_IT}")
    characters = text.partition("Block devices:")[0]
    return {match[2]: int(match[1]) for line in characters.splitlines() if (match := _MAJOR.fullmatch(line))}


def read_dev(
    root: HostRoot, wanted: Iterable[str] = (), read: Callable[[Path], NodeFacts | None] = read_node
) -> DevFiles:
    """GPUs' nodes, and those that are `wanted` besides."""
    paths = {path for pattern in DEV_PATTERNS for path in root.glob(pattern)}
    nodes = {}
    for path in sorted({*paths, *(one for one in wanted if one.startswith("/dev/"))}):
        if (real := root.real(path)) is not None and (facts := read(Path(root.outside(real)))) is not None:
            nodes[path] = Node(facts.major, facts.minor, facts.mode, facts.gid)
    return DevFiles(nodes, frozenset(root.names("/dev/char")))


def read_nvidia(root: HostRoot, driver: HostRoot) -> NvidiaFiles:
    """`driver`: below it are the driver's libraries."""
    said = root.read("/proc/driver/nvidia/version") or ""
    match = _KERNEL.search(said)
    version = root.read("/sys/module/nvidia/version") or (match[1] if match else "")
    directories = [f"/{directory}" for directory in DIRECTORIES]
    libraries = {
        real
        for directory in directories
        for name in driver.names(directory)
        if name.startswith("libnvidia-ml.so") and (real := driver.real(f"{directory}/{name}")) is not None
    }
    return NvidiaFiles(version, tuple(sorted(libraries)), tuple(map(driver.outside, directories)))


def read_special(root: HostRoot) -> SpecialHost:
    return SpecialHost(
        soc=root.read("/sys/devices/soc0/family") or "",
        tegra=root.real("/etc/nv_tegra_release") is not None,
        wsl=root.real("/dev/dxg") is not None,
        model=(root.read("/proc/device-tree/model") or "").replace("\0", "")[:100],
    )


def read_selinux(root: HostRoot) -> Selinux:
    """Of this process; a kernel without SELinux enforces nothing."""
    enforce = root.read("/sys/fs/selinux/enforce")
    own = HostRoot().read("/proc/self/attr/current") if enforce is not None else ""
    return Selinux(enforce == "1", (own or "").rstrip("\0"))


def read_xids(root: HostRoot) -> tuple[Xid, ...]:
    """From the kernel's log, which is not waited for. OSError where it may not be read."""
    path = root.outside("/dev/kmsg")
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    seen: Counter[tuple[str, int]] = Counter()
    left = LOG_MAX_BYTES
    try:
        while left > 0:
            try:
                record = os.read(fd, 8192)  # of /dev/kmsg, one record
            except BlockingIOError:
                break
            except BrokenPipeError:  # it was overwritten meanwhile: the next read goes on after it
                continue
            if not record:
                break
            left -= len(record)
            for bus, number in _XID.findall(record):
                key = bus.decode().lower(), int(number)
                if key in seen or len(seen) < XIDS_MAX:
                    seen[key] += 1
    finally:
        os.close(fd)
    return tuple(Xid(bus, number, count) for (bus, number), count in sorted(seen.items()))
