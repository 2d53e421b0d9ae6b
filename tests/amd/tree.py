"""Writes a machine as files below a root: what the kernel shows in /sys, and the nodes in /dev.

A tree can be written over another one: what differs changes, as when a GPU comes or goes. KFD's nodes are exchanged at
once, and its generation last; else the order of changes is not that of a kernel.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.amd.machines import GIB, PCIE, XGMI, Gpu, Machine, Part, joined

NODES = "sys/devices/virtual/kfd/kfd/topology/nodes"
GENERATION = "sys/devices/virtual/kfd/kfd/topology/generation_id"
SIMD_ID_BASE = 0x8000_1000  # of every GPU
NULL = os.makedev(1, 3)
MEMORY = Path("/dev/shm")  # a tree of 64 partitions has 5,000 files, and a disk needs seconds to forget them
Files = dict[str, str]  # by path. "-> x" is a link, "node" a device node


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty directory for a tree, in memory where that can be had."""
    with tempfile.TemporaryDirectory(prefix="amd-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as directory:
        yield Path(directory)


def write(root: Path, machine: Machine, *, true_nodes: bool = False, with_dev: bool = True) -> Path:
    """Makes the files below the root those of the machine. `true_nodes` need root; else plain files stand for them."""
    wanted = files_of(machine)
    if not with_dev:
        wanted = {path: text for path, text in wanted.items() if not path.startswith("dev/")}
    nodes = {path.removeprefix(NODES): text for path, text in wanted.items() if path.startswith(f"{NODES}/")}
    for path, text in nodes.items():
        _put(root / f"{NODES}.new{path}", text, true_nodes=true_nodes)
    for path in _present(root) - wanted.keys():
        if not path.startswith(NODES):
            (root / path).unlink()
    for path, text in wanted.items():
        if not path.startswith(NODES) and path != GENERATION:
            _put(root / path, text, true_nodes=true_nodes)
    _exchange(root / NODES)
    if GENERATION in wanted:
        _put(root / GENERATION, wanted[GENERATION], true_nodes=true_nodes)
    for top in ("sys", "dev"):
        _prune(root / top)
    return root


def _exchange(nodes: Path) -> None:
    """The new nodes, if there are any, in place of the old ones."""
    old, new = nodes.with_suffix(".old"), nodes.with_suffix(".new")
    if nodes.exists():
        nodes.rename(old)
    if new.exists():
        new.rename(nodes)
    shutil.rmtree(old, ignore_errors=True)


def _put(path: Path, text: str, *, true_nodes: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if text.startswith("-> "):
        if not path.is_symlink():
            path.symlink_to(text[3:])
    elif text == "node" and true_nodes:
        if not path.exists():
            os.mknod(path, 0o666 | stat.S_IFCHR, NULL)
    elif not path.exists() or path.read_text() != text:
        path.write_text(text)


def _present(root: Path) -> set[str]:
    return {
        str((Path(directory) / name).relative_to(root))
        for top in ("sys", "dev")
        for directory, names, files in os.walk(root / top)
        for name in (*files, *(n for n in names if (Path(directory) / n).is_symlink()))
    }


def _prune(directory: Path) -> None:
    for below, _, _ in os.walk(directory, topdown=False):
        if below != str(directory) and not any(Path(below).iterdir()):
            Path(below).rmdir()


def files_of(machine: Machine) -> Files:
    files: Files = {}
    parts = list(machine.parts())
    for part in parts if machine.driver else ():
        files |= _xcp(part) if part.xcp else _pci(part.gpu, part)
    if machine.driver:
        files["sys/module/amdgpu/drivers/pci:amdgpu"] = "-> ../../../bus/pci/drivers/amdgpu"
        files["sys/bus/pci/drivers/amdgpu/module"] = "-> ../../../../module/amdgpu"
        files["sys/module/amdgpu/version"] = "6.8.5\n"
        files["sys/module/amdgpu/srcversion"] = "8A62C5B9E2D1F3A4B7C6D5E\n"
    if machine.kfd and machine.driver:
        files["sys/class/kfd/kfd"] = "-> ../../devices/virtual/kfd/kfd"
        files["dev/kfd"] = "node"
        for cpu in range(machine.cpus):
            files[f"{NODES}/{cpu}/properties"] = f"cpu_cores_count {machine.cores}\nsimd_count 0\ndrm_render_minor 0\n"
        for part in parts:
            files |= _kfd_node(machine, part, parts)
        shown = len(parts) + machine.cpus
        files[GENERATION] = f"{shown}\n"
    return files


def _pci(gpu: Gpu, part: Part) -> Files:
    at = f"sys/devices/pci{gpu.address[:7]}/{gpu.address}"
    texts = {
        "vendor": "0x1002",
        "device": gpu.device,
        "numa_node": gpu.numa or "",
        "product_name": gpu.product,
        "current_compute_partition": gpu.compute,
        "available_compute_partition": "SPX, DPX, QPX, CPX" if gpu.compute else "",
        "current_memory_partition": gpu.memory,
        "available_memory_partition": "NPS1, NPS4" if gpu.memory else "",
        "mem_info_vram_total": str(gpu.vram_bytes or 64 * GIB),
        "mem_info_vram_used": str(gpu.vram_used_bytes),
        "gpu_busy_percent": gpu.busy,
        "unique_id": f"{hash_of(gpu.address):016x}",
    }
    files = {f"{at}/{name}": f"{text}\n" for name, text in texts.items() if text}
    files |= {f"{at}/ras/{block}_err_count": text for block, text in gpu.ras}
    files[f"{at}/driver"] = "-> ../../../bus/pci/drivers/amdgpu"
    files[f"sys/bus/pci/devices/{gpu.address}"] = f"-> ../../../{at[4:]}"
    files[f"sys/bus/pci/drivers/amdgpu/{gpu.address}"] = f"-> ../../../../{at[4:]}"
    return files | _drm(at, part)


def _xcp(part: Part) -> Files:
    at = f"sys/devices/platform/{part.xcp}"
    return {f"{at}/modalias": f"platform:{part.xcp}\n"} | _drm(at, part)


def _drm(at: str, part: Part) -> Files:
    files: Files = {}
    for name in (f"card{part.card}", f"renderD{part.render}"):
        minor = part.render if name.startswith("r") else part.card
        files[f"{at}/drm/{name}/dev"] = f"226:{minor}\n"
        files[f"{at}/drm/{name}/device"] = "-> ../.."
        files[f"sys/class/drm/{name}"] = f"-> ../../{at[4:]}/drm/{name}"
        files[f"dev/dri/{name}"] = "node"
    return files


def _kfd_node(machine: Machine, part: Part, parts: list[Part]) -> Files:
    gpu, at = part.gpu, f"{NODES}/{part.node}"
    bus, device = int(gpu.address[5:7], 16), int(gpu.address[8:10], 16)
    properties = {
        "cpu_cores_count": 0,
        "simd_count": gpu.simds,
        "mem_banks_count": len(gpu.bank_bytes[:1]),
        "simd_id_base": SIMD_ID_BASE,
        "simd_per_cu": 4,
        "gfx_target_version": gpu.gfx,
        "vendor_id": 4098,
        "device_id": int(gpu.device, 16),
        # The kernel puts the number of the partition where the PCI function would be.
        "location_id": bus << 8 | device << 3 | (part.number if gpu.parts > 1 else 0),
        "domain": int(gpu.address[:4], 16) if gpu.domain else None,
        "drm_render_minor": part.render,
    }
    files = {f"{at}/properties": _lines({k: v for k, v in properties.items() if v is not None})}
    files[f"{at}/gpu_id"] = f"{1 + hash_of(f'{gpu.address}/{part.number}') % 65535}\n"
    if gpu.bank_bytes:
        bank = {"heap_type": 1, "size_in_bytes": gpu.bank_bytes[part.number], "flags": 0, "width": 4096}
        files[f"{at}/mem_banks/0/properties"] = _lines(bank)
    numa = gpu.numa or ""
    cpu = min(int(numa), machine.cpus - 1) if numa.isdigit() else 0
    near: list[tuple[int, int]] = [(cpu, PCIE)]
    far = [(other, PCIE) for other in range(machine.cpus) if other != cpu]
    for other in parts:
        kind = joined(part, other) if other.node != part.node else None
        if kind is not None:
            (near if kind == XGMI else far).append((other.node, kind))
    for name, links in (("io_links", near), ("p2p_links", far)):
        for number, (to, kind) in enumerate(links):
            link = {"type": kind, "version_major": 0, "version_minor": 0, "node_from": part.node, "node_to": to}
            files[f"{at}/{name}/{number}/properties"] = _lines(link | {"weight": 15, "min_latency": 0, "flags": 1})
    return files


def _lines(values: dict[str, int]) -> str:
    return "".join(f"{name} {value}\n" for name, value in values.items())


def hash_of(text: str) -> int:
    """A number that is always the same for a text."""
    return int.from_bytes(text.encode()[-8:], "big") * 0x9E3779B97F4A7C15 % 2**64


def remove(root: Path, path: str) -> None:
    """A file, a link or a directory with all that is in it."""
    target = root / path
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink()
