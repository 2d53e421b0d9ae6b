"""Devices and links out of what the kernel shows. Pure.

The score of a link is 100 less AMD's own weight of the pair, so that the most score is the least weight. A pair between
which no link is known has the weight of the worst link, not of none: docs/decisions/0025-amd-from-sysfs.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from msgspec import Struct
from msgspec.structs import replace

from fairlead.backends.amd.host import DrmNodes, Host, PciFunction
from fairlead.backends.amd.topology import PCIE, XGMI, KfdNode
from fairlead.model.device import Device, DeviceNode
from fairlead.model.errors import some
from fairlead.model.inventory import Findings, Links

VENDOR = "amd"
KFD = "/dev/kfd"
WHOLE = ("", "spx")  # compute partitions that are the whole GPU
SAME_GPU, OTHER_GPU = 10, 20
LINK_WEIGHTS = {XGMI: 10, PCIE: 40}
WORST_LINK = 50
SAME_NUMA, OTHER_NUMA = 10, 20
BEST = 100  # a score is so much less the weight
MEMORY_MAX_BYTES = 2**46  # more is no GPU's: it is garbage, and units of memory would be made of it

_UNFIT = re.compile(r"[^a-z0-9]+")

# For boards whose firmware does not say their name. By PCI device.
MODELS = {
    "0x6860": "AMD Instinct MI25",
    "0x66a0": "AMD Instinct MI60",
    "0x66a1": "AMD Instinct MI50",
    "0x738c": "AMD Instinct MI100",
    "0x7408": "AMD Instinct MI250X",
    "0x740c": "AMD Instinct MI250",
    "0x740f": "AMD Instinct MI210",
    "0x74a0": "AMD Instinct MI300A",
    "0x74a1": "AMD Instinct MI300X",
    "0x74a2": "AMD Instinct MI308X",
    "0x74a5": "AMD Instinct MI325X",
    "0x74b5": "AMD Instinct MI300X VF",
    "0x75a0": "AMD Instinct MI350X",
    "0x75a3": "AMD Instinct MI355X",
}


class _Found(Struct, frozen=True):
    device: Device
    gpu: str  # the PCI address
    node: int | None  # of KFD


def make_findings(host: Host, dev_root: str = "") -> Findings:
    problems = [*host.problems, *host.topology.problems]
    nodes, unreadable = host.topology.nodes, bool(host.topology.unreadable)
    by_slot = {function.drm.id[:-1]: function for function in reversed(host.functions)}
    taken: dict[int, str] = {}
    orphans: list[str] = []
    found: list[_Found] = []
    for drm, function in _members(host, by_slot):
        node = nodes.get(drm.render)
        if (owner := taken.setdefault(drm.render, drm.id)) != drm.id:
            problems.append(f"{drm.id} is left out: renderD{drm.render} is {owner}'s as well")
        elif function is not None:
            found.append(_found(function, drm, node, dev_root))
            if node is None and not unreadable:
                problems.append(f"{drm.id}: KFD shows no node for renderD{drm.render}: it cannot compute")
        elif node is None:
            orphans.append(drm.id)
        else:
            problems.append(f"{drm.id} is left out: its GPU, {node.address}*, is none of the driver's PCI functions")
    if orphans:
        problems.append(
            f"{some(orphans)}: left out, because KFD shows no node of theirs and so not which GPU is theirs"
        )
    found.sort(key=lambda one: (one.gpu, one.device.id != one.gpu, -1 if one.node is None else one.node))
    # As ROCm's programs count them: by their place among the GPUs of KFD.
    places = {number: str(place) for place, number in enumerate(sorted(node.number for node in nodes.values()))}
    devices = tuple(replace(one.device, index=places.get(-1 if one.node is None else one.node, "")) for one in found)
    return Findings(devices, _links(found, host.topology.links), tuple(problems))


def _members(host: Host, by_slot: Mapping[str, PciFunction]) -> Iterator[tuple[DrmNodes, PciFunction | None]]:
    """What may be offered, each with the PCI function that it is, or is a partition of."""
    for function in host.functions:
        yield function.drm, function
    for drm in host.partitions:
        node = host.topology.nodes.get(drm.render)
        yield drm, by_slot.get(node.address) if node else None


def _found(function: PciFunction, drm: DrmNodes, node: KfdNode | None, dev_root: str) -> _Found:
    part = drm.id != function.drm.id or function.compute not in WHOLE
    names = [KFD, *([] if drm.card is None else [f"/dev/dri/card{drm.card}"]), f"/dev/dri/renderD{drm.render}"]
    model = function.product or MODELS.get(function.device, "")
    facts = {
        "kind": "partition" if part else "gpu",
        "gpu": function.drm.id,
        "render": str(drm.render),
        "card": "" if drm.card is None else str(drm.card),
        "computePartition": function.compute,
        "memoryPartition": function.memory,
        "profile": f"{function.compute}_{function.memory}" if function.compute and function.memory else "",
        "product": _UNFIT.sub("-", model.lower().removeprefix("amd ")).strip("-"),  # fit for a resource's name
        "deviceId": function.device,
        "serial": function.serial,
    }
    if node is not None:
        facts |= {"kfdNode": str(node.number), "gfx": node.gfx, "simdCount": str(node.simds)}
        facts["cuCount"] = str(node.simds // node.simds_per_cu) if node.simds_per_cu else ""
    memory_bytes = (node.memory_bytes if node else 0) or (0 if part else function.vram_bytes)
    device = Device(
        drm.id,
        vendor=VENDOR,
        model=model,
        memory_bytes=memory_bytes if memory_bytes <= MEMORY_MAX_BYTES else 0,
        pci_address=function.drm.id,
        numa_nodes=() if function.numa is None else (function.numa,),
        nodes=tuple(DeviceNode(dev_root + name, name if dev_root else "") for name in names),
        parent=function.drm.id if part else None,
        attributes={name: value for name, value in facts.items() if value},
    )
    return _Found(device, function.drm.id, None if node is None else node.number)


def _links(found: Sequence[_Found], kinds: Mapping[tuple[int, int], int]) -> Links:
    return Links(
        {(one.device.id, other.device.id): BEST - _weight(one, other, kinds) for one, other in combinations(found, 2)}
    )


def _weight(one: _Found, other: _Found, kinds: Mapping[tuple[int, int], int]) -> int:
    kind = None
    if one.node is not None and other.node is not None:
        kind = kinds.get((min(one.node, other.node), max(one.node, other.node)))
    near = one.device.numa_nodes == other.device.numa_nodes
    return (
        (SAME_GPU if one.gpu == other.gpu else OTHER_GPU)
        + LINK_WEIGHTS.get(kind or 0, WORST_LINK)
        + (SAME_NUMA if near else OTHER_NUMA)
    )
