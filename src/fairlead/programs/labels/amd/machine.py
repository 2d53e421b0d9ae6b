"""What is read of AMD GPUs for their labels, beside what the backend reads. Blocking: runs on an owner thread."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fairlead.backends.amd.devices import MODELS, WHOLE
from fairlead.backends.amd.host import DRIVER, Host, PciFunction, read_host
from fairlead.backends.amd.topology import KfdNode
from fairlead.kit import files
from fairlead.kit.hostroot import HostRoot
from fairlead.programs.labels.amd.catalogue import Facts, Gpu
from fairlead.programs.labels.amd.families import Version, find_family

VENDOR = 0x1002
MODULE = "/sys/module/amdgpu"
DEBUG = "/sys/kernel/debug/dri"
NAMES = "/usr/share/libdrm/amdgpu.ids"  # libdrm's own list: device, revision, name
# The blocks that AMD's labeller asks libdrm for, and the driver's files of their versions.
BLOCKS = {
    "VCE": "vce",
    "UVD": "uvd",
    "MC": "mc",
    "ME": "me",
    "PFP": "pfp",
    "CE": "ce",
    "RLC": "rlc",
    "MEC": "mec",
    "SMC": "smc",
    "SDMA0": "sdma",
}
_HEX = re.compile(r"0x[0-9a-fA-F]{1,8}")
_INFO = re.compile(r"^(\w+) feature version: (\d{1,10}), firmware version: 0x([0-9a-fA-F]{1,8})$", re.MULTILINE)
_NAMED = re.compile(r"^([0-9A-Fa-f]{4}),[ \t]*([0-9A-Fa-f]{1,2}),(.{1,200})$", re.MULTILINE)


def read_facts(root: HostRoot, known: dict[str, str] | None = None) -> tuple[Facts, tuple[str, ...]]:
    """The facts, and what is wrong with some of them. NotYet without a driver, BackendError for one that is broken.

    `known`: see `read_host`.
    """
    host = read_host(root, known)
    problems = [*host.problems, *host.topology.problems]
    names = _read_names(root) if any(not function.product for function in host.functions) else {}
    mine: list[PciFunction] = []
    for function in host.functions:
        vendor = _number(root.read(f"{DRIVER}/{function.drm.id}/vendor")) or VENDOR
        if vendor == VENDOR:
            mine.append(function)
        else:
            problems.append(f"{function.drm.id} has no labels: its vendor is {vendor:#06x}, and AMD's is {VENDOR:#06x}")
    gpus = [_whole(root, function, host.topology.nodes.get(function.drm.render), names) for function in mine]
    can = [f"{DRIVER}/{function.drm.id}/available_{{}}_partition" for function in mine]
    facts = Facts(
        (*gpus, *_parts(host, mine)),
        root.read(f"{MODULE}/version") or "",
        root.read(f"{MODULE}/srcversion") or "",
        any(root.real(path.format("compute")) for path in can),
        any(root.real(path.format("memory")) for path in can),
    )
    return facts, tuple(problems)


def parse_firmware(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """Feature and firmware versions by block, of the driver's amdgpu_firmware_info."""
    found = _INFO.findall(text)
    return {block: int(feature) for block, feature, _ in found}, {
        block: int(version, 16) for block, _, version in found
    }


def _whole(root: HostRoot, function: PciFunction, node: KfdNode | None, names: Mapping[tuple[int, int], str]) -> Gpu:
    at = f"{DRIVER}/{function.drm.id}"
    device, revision = _number(function.device), _number(root.read(f"{at}/revision"))
    features, firmware = parse_firmware(root.read(f"{DEBUG}/{function.drm.card}/amdgpu_firmware_info") or "")
    for block, name in BLOCKS.items():
        if version := root.read(f"{at}/fw_version/{name}_fw_version"):
            firmware |= {block: _number(version)} if _HEX.fullmatch(version) else {}
    return Gpu(
        f"{device:04x}" if device else "",
        function.product or names.get((device, revision)) or MODELS.get(function.device, ""),
        find_family(_core(root, at), node.gfx if node else "", device),
        (node.memory_bytes if node else 0) or (function.vram_bytes if function.compute in WHOLE else 0),
        node.simds if node else 0,
        node.simds_per_cu if node else 0,
        _cut(function),
        {block: version for block, version in firmware.items() if block in BLOCKS},
        {block: version for block, version in features.items() if block in BLOCKS},
    )


def _parts(host: Host, functions: list[PciFunction]) -> list[Gpu]:
    """Partitions beside the PCI functions: the driver says of them what KFD says."""
    cuts = {function.drm.id[:-1]: _cut(function) for function in functions}
    nodes = [host.topology.nodes.get(drm.render) for drm in host.partitions]
    return [
        Gpu(
            vram_bytes=node.memory_bytes, simds=node.simds, simds_per_cu=node.simds_per_cu, partition=cuts[node.address]
        )
        for node in nodes
        if node is not None and node.address in cuts
    ]


def _cut(function: PciFunction) -> str:
    return f"{function.compute}_{function.memory}" if function.compute and function.memory else ""


def _core(root: HostRoot, at: str) -> Version:
    parts = [root.read(f"{at}/ip_discovery/die/0/GC/0/{name}") or "" for name in ("major", "minor", "revision")]
    return tuple(int(part) for part in parts) if all(re.fullmatch(r"\d{1,3}", part) for part in parts) else ()


def _number(text: str | None) -> int:
    return int(text, 16) if text and _HEX.fullmatch(text) else 0


def _read_names(root: HostRoot) -> dict[tuple[int, int], str]:
    text = root.read(NAMES, files.MAX_BYTES) or ""
    return {(int(device, 16), int(revision, 16)): name.strip() for device, revision, name in _NAMED.findall(text)}
