"""GPUs by their device nodes alone: what is known of them without NVML. Blocking: runs on the owner thread.

A GPU is its minor number. What the kernel module says of it in /proc is added where it is there.
"""

from __future__ import annotations

import re

from fairlead.backends.nvidia.errors import DriverAbsent
from fairlead.backends.nvidia.hostnodes import NEEDED_NODES, below, read_node
from fairlead.backends.nvidia.kernel import read_numa
from fairlead.backends.nvidia.snapshot import Gpu, MigDevice, Platform, Snapshot
from fairlead.kit.hostroot import HostRoot

_GPU = re.compile(r"nvidia(\d{1,3})")
_INSTANCE = re.compile(r"gi(\d{1,3})")
_MINOR = re.compile(r"^DeviceFileMinor:\s*(\d{1,7})$", re.MULTILINE)
_FACT = re.compile(r"^([A-Za-z ]+?):\s*(.*?)\s*$", re.MULTILINE)
CONTROL_MINOR = 255  # nvidiactl; GPUs have the numbers below
INSTANCES_MAX = 64  # on one GPU; the hardware has 7

Facts = dict[int, tuple[str, str]]  # by minor number: address on the bus, model


def read_nodes(root: str) -> Snapshot:
    """DriverAbsent while the driver's own nodes, or all of the GPUs', are missing."""
    host = HostRoot(root)
    names = sorted(int(found[1]) for name in host.names("/dev") if (found := _GPU.fullmatch(name)))
    minors = [minor for minor in names if minor < CONTROL_MINOR and _is_there(root, f"/dev/nvidia{minor}")]
    if missing := missing_nodes(root):
        raise DriverAbsent(f"there is no {' and no '.join(missing)}", "Install the driver, or load its modules")
    problems: list[str] = []
    facts = _read_facts(host)
    gpus = tuple(_read_gpu(host, root, index, minor, facts, problems) for index, minor in enumerate(minors))
    return Snapshot(
        Platform.NODES,
        gpus,
        driver_version=host.read("/sys/module/nvidia/version") or "",
        problems=tuple(problems),
    )


def missing_nodes(root: str) -> list[str]:
    """Of those without which no program can use a GPU."""
    return [path for path in NEEDED_NODES if not _is_there(root, path)]


def _is_there(root: str, path: str) -> bool:
    return read_node(below(root, path)) is not None


def _read_gpu(host: HostRoot, root: str, index: int, minor: int, facts: Facts, problems: list[str]) -> Gpu:
    bus_id, model = facts.get(minor, ("", ""))
    numa = None
    try:
        numa = read_numa(root, bus_id) if bus_id else None
    except ValueError:
        problems.append(f"nvidia{minor}: numa_node of {bus_id} is no number of a node; it counts as unknown")
    migs = tuple(_read_instances(host, minor, problems))
    return Gpu(f"nvidia{minor}", index, minor, bus_id, model, numa=numa, mig_enabled=bool(migs), migs=migs)


def _read_instances(host: HostRoot, minor: int, problems: list[str]) -> list[MigDevice]:
    base = f"/proc/driver/nvidia/capabilities/gpu{minor}/mig"
    found = sorted(int(one[1]) for name in host.names(base) if (one := _INSTANCE.fullmatch(name)))
    if len(found) > INSTANCES_MAX:
        problems.append(f"nvidia{minor}: {len(found)} MIG instances; only {INSTANCES_MAX} of them are looked at")
    return [
        MigDevice(
            f"nvidia{minor}/gi{gi}",
            index,
            gi,
            0,
            gi_cap=_read_minor(host, f"{base}/gi{gi}/access"),
            ci_cap=_read_minor(host, f"{base}/gi{gi}/ci0/access"),
        )
        for index, gi in enumerate(found[:INSTANCES_MAX])
    ]


def _read_minor(host: HostRoot, path: str) -> int | None:
    found = _MINOR.search(host.read(path) or "")
    return int(found[1]) if found else None


def _read_facts(host: HostRoot) -> Facts:
    facts: Facts = {}
    base = "/proc/driver/nvidia/gpus"
    for address in host.names(base)[:CONTROL_MINOR]:
        said = dict(_FACT.findall(host.read(f"{base}/{address}/information") or ""))
        number = said.get("Device Minor", "")
        if number.isascii() and number.isdigit() and len(number) <= 3:
            facts[int(number)] = (address, said.get("Model", ""))
    return facts
