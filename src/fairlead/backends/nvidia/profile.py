"""MIG profiles: what an instance is called. Pure; the numbers are NVML's."""

from __future__ import annotations

from math import ceil, floor

_MIB, _GIB = 2**20, 2**30
_EIGHTHS = 8  # a GPU's memory is cut into eighths

# Of a GPU instance, by NVML's constant: how many slices, and what its name says beside its size.
GI: dict[int, tuple[int, str]] = {
    0: (1, ""),
    1: (2, ""),
    2: (3, ""),
    3: (4, ""),
    4: (7, ""),
    5: (8, ""),
    6: (6, ""),
    7: (1, "+me"),
    8: (2, "+me"),
    9: (1, ""),  # twice the memory; the size says it
    10: (1, "+gfx"),
    11: (2, "+gfx"),
    12: (4, "+gfx"),
    13: (1, "-me"),
    14: (2, "-me"),
    15: (1, "+me.all"),
    16: (2, "+me.all"),
    17: (3, "+gfx"),
}
# Of a compute instance: how many slices.
CI = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 5: 8, 6: 6, 7: 1, 8: 7}


def name_profile(*, gi_slices: int, ci_slices: int, mark: str, memory_mib: int, gpu_memory_bytes: int) -> str:
    """`1g.5gb`, `1c.2g.10gb`, `1g.10gb+me`."""
    part = f"{ci_slices}c." if ci_slices != gi_slices else ""
    return f"{part}{gi_slices}g.{whole_gb(memory_mib, gpu_memory_bytes)}gb{mark}"


def whole_gb(memory_mib: int, gpu_memory_bytes: int) -> int:
    """The figure that people know a profile by: the share in whole eighths, of the GPU's size in whole GiB."""
    if gpu_memory_bytes <= 0:
        return round(memory_mib * _MIB / _GIB)
    eighths = ceil(_EIGHTHS * memory_mib * _MIB / gpu_memory_bytes)
    # A half goes up, where Python's round would take the even neighbour.
    return floor(eighths / _EIGHTHS * ceil(gpu_memory_bytes / _GIB) + 0.5)
