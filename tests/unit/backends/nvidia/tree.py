"""A driver's files below a temporary root, as the vectors list them. Device nodes are files with made-up facts."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

from fairlead.backends.nvidia.hostnodes import NodeFacts
from fairlead.backends.nvidia.snapshot import Gpu, MigDevice, Platform, Snapshot

FACTS = {
    r"/dev/nvidia(\d+)": (195, 0, 0o666, 0),
    r"/dev/nvidiactl": (195, 255, 0o666, 0),
    r"/dev/nvidia-modeset": (195, 254, 0o666, 0),
    r"/dev/nvidia-uvm": (511, 0, 0o666, 0),
    r"/dev/nvidia-uvm-tools": (511, 1, 0o666, 0),
    r"/dev/nvidia-caps/nvidia-cap(\d+)": (510, 0, 0o440, 0),
    r"/dev/dri/card(\d+)": (226, 0, 0o660, 44),
    r"/dev/dri/renderD(\d+)": (226, 0, 0o660, 105),
    r"/dev/nvidia-fs(\d+)": (235, 0, 0o666, 0),
    r"/dev/infiniband/uverbs(\d+)": (231, 192, 0o666, 0),
    r"/dev/infiniband/rdma_cm": (10, 58, 0o660, 0),
    r"/dev/gdrdrv": (236, 0, 0o666, 0),
    r"/dev/nvidia-caps-imex-channels/channel(\d+)": (509, 0, 0o666, 0),
}


def read_made_up(path: Path) -> NodeFacts | None:
    """Stands in for a stat of a character device: making one needs rights that a test should not have."""
    if not path.is_file():
        return None
    _, _, name = str(path).rpartition("/dev/")
    for pattern, (major, minor, mode, gid) in FACTS.items():
        if found := re.fullmatch(pattern, f"/dev/{name}"):
            return NodeFacts(major, minor + int(found[1] if found.groups() else 0), mode, gid)
    return None


def library(soname: str = "") -> bytes:
    """The smallest ELF file that has a SONAME: one segment, a dynamic section, its strings."""
    strings = b"\0" + soname.encode() + b"\0"
    head = 64 + 2 * 56
    entries = ([(14, 1)] if soname else []) + [(5, head + 64), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", tag, value) for tag, value in entries).ljust(64, b"\0")
    size = head + len(dynamic) + len(strings)
    return b"".join(
        [
            b"\x7fELF\x02\x01\x01".ljust(16, b"\0"),
            struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0),
            struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, size, size, 4096),
            struct.pack("<IIQQQQQQ", 2, 4, head, head, head, len(dynamic), len(dynamic), 8),
            dynamic,
            strings,
        ]
    )


def plant(root: Path, tree: dict[str, Any], gpus: list[dict[str, Any]]) -> None:
    """Makes the files of a vector."""
    at = root / tree["library"].lstrip("/")
    at.parent.mkdir(parents=True, exist_ok=True)
    versioned = at.with_name(f"libnvidia-ml.so.{tree['version']}")
    versioned.write_bytes(library("libnvidia-ml.so.1"))
    at.symlink_to(versioned.name)
    for path in tree["files"]:
        put(root, path).chmod(0o755)
    for path, target in tree["links"].items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    for path in tree["nodes"]:
        put(root, path)
        if tree.get("dev_below") and "-caps/" not in path:
            put(root, tree["dev_below"] + path)
    for gpu in gpus:
        _plant_graphics(root, gpu)


def _plant_graphics(root: Path, gpu: dict[str, Any]) -> None:
    for kind, number in zip(("card", "render"), gpu.get("drm", ()), strict=False):
        name = f"card{number}" if kind == "card" else f"renderD{number}"
        put(root, f"/dev/dri/{name}")
        put(root, f"/sys/bus/pci/devices/{gpu['bus_id']}/drm/{name}/dev")
        link = root / f"dev/dri/by-path/pci-{gpu['bus_id']}-{kind}"
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(f"../{name}")


def put(root: Path, path: str, content: bytes = b"") -> Path:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return place


def look_of(gpus: list[dict[str, Any]], version: str) -> Snapshot:
    return Snapshot(
        Platform.NVML,
        tuple(
            Gpu(
                gpu["uuid"],
                gpu["index"],
                gpu["minor"],
                gpu["bus_id"],
                mig_enabled=gpu.get("mig_enabled", False),
                migs=tuple(MigDevice(**mig) for mig in gpu.get("migs", ())),
            )
            for gpu in gpus
        ),
        driver_version=version,
    )
