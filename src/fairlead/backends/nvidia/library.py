"""Where the driver's library is, and what kind of machine this is. Blocking: runs on the owner thread."""

from __future__ import annotations

import os
from pathlib import Path

from fairlead.backends import files
from fairlead.backends.nvidia.errors import library_broken, library_missing
from fairlead.backends.nvidia.nvml import Nvml, can_load
from fairlead.backends.nvidia.records import Kind
from fairlead.backends.nvidia.spec import Discovery, Options

NAME = "libnvidia-ml.so.1"
WSL_NAME = "libdxcore.so"
# Below the driver's root, in this order.
DIRECTORIES = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)
_NO_NVML_NAMES = ("(nvgpu)", "NVIDIA Thor")  # parts of the names of GPUs on a system on a chip


def load(root: str) -> Nvml:
    """The library of the driver's root, or the one that the system's loader finds. DriverAbsent where there is none."""
    tried: list[str] = []
    broken = False
    for path in (*_below(root), NAME):
        try:
            return Nvml(path)
        except OSError as error:
            tried.append(_say(str(error), path))
            broken |= path != NAME or "No such file" not in str(error)
    if broken:
        raise library_broken(tried)
    where = f"not in {', '.join(DIRECTORIES)} below {root}" if _is_own(root) else ""
    raise library_missing(NAME, [where, *tried] if where else tried)


def has_library(root: str) -> bool:
    try:
        load(root)
    except Exception:  # noqa: BLE001 - why it is not there is told when it is needed
        return False
    return True


def kind_before(options: Options) -> Kind:
    """The kind of machine, as far as it can be told without asking the driver."""
    if options.discovery is Discovery.TEGRA:
        return Kind.TEGRA
    if can_load(WSL_NAME):
        return Kind.WSL
    if options.discovery is Discovery.AUTO and _has_tegra_files(options.driver_root_mount):
        return Kind.NVML if has_library(options.driver_root_mount) else Kind.TEGRA
    return Kind.NVML


def is_soc(names: list[str]) -> bool:
    """Whether these GPUs are part of a system on a chip: NVML lists them, and can do no more with them."""
    return any(mark in name for name in names for mark in _NO_NVML_NAMES)


def _has_tegra_files(root: str) -> bool:
    if (Path(root) / "etc/nv_tegra_release").exists():
        return True
    try:
        family = files.read_text(Path(root) / "sys/devices/soc0/family", files.SMALL_BYTES, errors="replace")
    except OSError:
        return False
    return family.lower().startswith("tegra")


def _is_own(root: str) -> bool:
    return root.strip("/") != ""


def _below(root: str) -> list[str]:
    if not _is_own(root):
        return []
    paths = [Path(root) / directory / NAME for directory in DIRECTORIES]
    return [os.path.realpath(path) for path in paths if path.exists()]


def _say(error: str, path: str) -> str:
    """The loader's words, with the path in them once."""
    return error if path in error else f"{path}: {error}"
