"""The KFD topology: compute nodes of the kernel, by the render node that each belongs to, and the links between them.

Blocking: runs on the owner thread. Knows nothing of PCI functions and platform devices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from fairlead.backends.amd import sysfs
from fairlead.kit.hostroot import HostRoot
from fairlead.model.errors import BackendError, some

NODES = "/sys/class/kfd/kfd/topology/nodes"
PCIE, XGMI = 2, 11
ATTEMPTS = 3
LINKS_MAX = 2**16  # of all nodes together: 128 nodes that all know each other have a quarter of it
_FRAMEBUFFERS = (1, 2)  # heap types: visible to the CPU, and not

_PROPERTY = re.compile(rb"^(\w+) (\d{1,20})$", re.MULTILINE)
_LINK = re.compile(rb"type (\d{1,9})\n.*?\nnode_to (\d{1,9})\n", re.DOTALL)

Links = dict[tuple[int, int], int]  # the type between two nodes, smaller number first


class KfdNode(Struct, frozen=True):
    number: int
    render: int
    address: str  # of the PCI function, as far as KFD says it: without the last digit
    gfx: str = ""
    simds: int = 0
    simds_per_cu: int = 0
    memory_bytes: int = 0


class Topology(Struct, frozen=True):
    nodes: Mapping[int, KfdNode] = {}  # GPUs, by render minor
    links: Mapping[tuple[int, int], int] = {}
    unreadable: str = ""  # why some nodes cannot be read. What is not among the others may be one of them
    problems: tuple[str, ...] = ()


def read_topology(root: HostRoot, *, details: bool = True) -> Topology:
    """BackendError if it cannot be listed. A node that cannot be read costs that node only.

    Without details: which GPUs there are, and neither their memory nor their links.

    The kernel makes all nodes anew when one GPU comes, goes or is cut: what was read meanwhile is no topology.
    """
    real = root.real(NODES)
    if real is None:
        return Topology()
    at = root.outside(real)
    for _ in range(ATTEMPTS):
        before = _generation(at)
        found = _read(at, details=details)
        if _generation(at) == before:
            return found
    raise BackendError(f"{NODES}: it changed while it was read, {ATTEMPTS} times")


def _generation(at: str) -> str:
    with suppress(OSError):
        return sysfs.text(f"{at.removesuffix('/nodes')}/generation_id")
    return ""


def _read(at: str, *, details: bool) -> Topology:
    nodes: dict[int, KfdNode] = {}
    unreadable: dict[str, list[str]] = {}  # nodes by the reason
    try:
        numbers = sysfs.numbered(at)
    except OSError as error:
        raise BackendError(f"{NODES}: {sysfs.why(error)}") from error
    for number in numbers:
        try:
            properties = read_properties(f"{at}/{number}/properties")
        except OSError as error:
            unreadable.setdefault(f"properties: {sysfs.why(error)}{_cure(error)}", []).append(str(number))
            continue
        if "cpu_cores_count" not in properties and "drm_render_minor" not in properties:
            reason = "properties have neither cpu_cores_count nor drm_render_minor"
            unreadable.setdefault(reason, []).append(str(number))
        render = properties.get("drm_render_minor", 0)
        if render > 0 and render not in nodes:
            nodes[render] = _node(number, render, properties, _memory(f"{at}/{number}/mem_banks") if details else 0)
    problems = [f"KFD node {some(named)}: {reason}" for reason, named in unreadable.items()]
    blind = problems[0] if problems else ""
    links = _read_links(at, sorted(node.number for node in nodes.values()), problems) if details else {}
    return Topology(nodes, links, blind, tuple(problems))


def read_properties(path: str) -> dict[str, int]:
    return {name.decode(): int(value) for name, value in _PROPERTY.findall(sysfs.read(path))}


def gfx_name(version: int) -> str:
    """90010 is gfx90a: major, minor and stepping, the last two in hexadecimal digits."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version > 0 else ""


def _node(number: int, render: int, properties: Mapping[str, int], memory_bytes: int) -> KfdNode:
    location = properties.get("location_id", 0)
    domain = properties.get("domain", 0)  # kernels before 5.4 do not say it, and know no other
    return KfdNode(
        number,
        render,
        f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.",
        gfx_name(properties.get("gfx_target_version", 0)),
        properties.get("simd_count", 0),
        properties.get("simd_per_cu", 0),
        memory_bytes,
    )


def _memory(banks: str) -> int:
    """What cannot be read is not counted: a size is for people and for units of memory, and 0 is "not known"."""
    total = 0
    try:
        for number in sysfs.numbered(banks):
            bank = read_properties(f"{banks}/{number}/properties")
            if bank.get("heap_type", 1) in _FRAMEBUFFERS:
                total += bank.get("size_in_bytes", 0)
    except OSError:
        return 0
    return total


def _read_links(at: str, gpus: list[int], problems: list[str]) -> Links:
    """The types of links. One that cannot be read is not known, and so the worst there is.

    Both ends show a link, and none is better than XGMI: where that is known already, nothing more is read. The kernel
    adds the links to later nodes at the end, so that from there half of the files are enough.
    """
    links: Links = {}
    left = LINKS_MAX
    for node in gpus:
        sought = {other for other in gpus if other != node and links.get(_pair(node, other)) != XGMI}
        for directory in (f"{at}/{node}/io_links", f"{at}/{node}/p2p_links"):
            try:
                for number in reversed(sysfs.numbered(directory) if sought and left else ()):
                    found = _LINK.search(sysfs.read(f"{directory}/{number}/properties"))
                    if found and (other := int(found[2])) in sought:
                        links[_pair(node, other)] = kind = int(found[1])
                        if kind == XGMI:
                            sought.remove(other)
                    left -= 1
                    if not sought or not left:
                        break
            except OSError as error:
                problems.append(f"KFD node {node}: links: {sysfs.why(error)}")
        if not left:
            problems.append(f"KFD: more than {LINKS_MAX:,} links: the rest is not read")
            break
    return links


def _pair(one: int, other: int) -> tuple[int, int]:
    return (one, other) if one < other else (other, one)


def _cure(error: OSError) -> str:
    """The kernel hides a node from a process whose cgroup may not use its render node."""
    if not isinstance(error, PermissionError):
        return ""
    return ". Run the daemon privileged, or let its container use the GPU's render nodes"
