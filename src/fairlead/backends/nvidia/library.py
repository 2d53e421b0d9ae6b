"""Where the driver's library is, and what kind of machine this is. Blocking: runs on the owner thread."""

from __future__ import annotations

import os
from pathlib import Path

from fairlead.backends.nvidia.errors import library_broken, library_missing
from fairlead.backends.nvidia.nvml import Nvml, can_load
from fairlead.backends.nvidia.snapshot import Platform
from fairlead.backends.nvidia.spec import Discovery, Options
from fairlead.kit.hostroot import HostRoot

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
    except Exception:  # noqa: BLE001 - the error comes when the library is needed
        return False
    return True


def kind_before(options: Options) -> Platform:
    """The kind of machine, as far as it shows without asking the driver."""
    if options.discovery is Discovery.TEGRA:
        return Platform.TEGRA
    if can_load(WSL_NAME):
        return Platform.WSL
    if options.discovery is Discovery.AUTO and _has_tegra_files(options.driver_root_mount):
        return Platform.NVML if has_library(options.driver_root_mount) else Platform.TEGRA
    return Platform.NVML


def is_soc(names: list[str]) -> bool:
    """Whether these GPUs are part of a system on a chip: NVML lists them, and can do no more with them."""
    return any(mark in name for name in names for mark in _NO_NVML_NAMES)


def _has_tegra_files(root: str) -> bool:
    below = HostRoot(root)
    family = below.read("/sys/devices/soc0/family") or ""
    return below.real("/etc/nv_tegra_release") is not None or family.lower().startswith("tegra")


def _is_own(root: str) -> bool:
    return root.strip("/") != ""


def _below(root: str) -> list[str]:
    if not _is_own(root):
        return []
    paths = [Path(root) / directory / NAME for directory in DIRECTORIES]
    return [os.path.realpath(path) for path in paths if path.exists()]


def _say(error: str, path: str) -> str:
    """The loader's message, with the path in it once."""
    return error if path in error else f"{path}: {error}"
