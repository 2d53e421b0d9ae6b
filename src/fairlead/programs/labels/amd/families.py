"""The family of an AMD GPU, by the names of AMD's labeller: of its graphics core, or of its PCI id. Pure.

libdrm asks the driver for it. The driver derives it from the same numbers, which sysfs has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Version = tuple[int, ...]
_GFX = re.compile(r"gfx(\d{1,2})([0-9a-f])([0-9a-f])")

# By the version of the graphics core (GC) in the GPU's own discovery table; the longest match counts.
_BY_CORE: Mapping[Version, str] = {
    (9,): "AI",
    (9, 1, 0): "RV",
    (9, 2, 2): "RV",
    (9, 3, 0): "RV",
    (10,): "NV",
    (10, 3, 1): "VGH",
    (10, 3, 3): "YC",
    (10, 3, 6): "GC_10_3_6",
    (10, 3, 7): "GC_10_3_7",
    (11,): "GC_11_0_0",
    (11, 0, 1): "GC_11_0_1",
    (11, 0, 4): "GC_11_0_1",
    (11, 5): "GC_11_5_0",
    (12,): "GC_12_0_0",
}
# By the compiler's name of it, which KFD has: gfx90a is 9.0.10. gfx1036 is GC 10.3.6 and 10.3.7.
_BY_TARGET: Mapping[Version, str] = {
    (7,): "CI",
    (7, 0, 0): "KV",
    (8,): "VI",
    (8, 0, 1): "CZ",
    (8, 1): "CZ",
    (9,): "AI",
    (9, 0, 2): "RV",
    (9, 0, 9): "RV",
    (9, 0, 12): "RV",
    (10,): "NV",
    (10, 3, 3): "VGH",
    (10, 3, 5): "YC",
    (10, 3, 6): "GC_10_3_6",
    (11,): "GC_11_0_0",
    (11, 0, 3): "GC_11_0_1",
    (11, 5): "GC_11_5_0",
    (12,): "GC_12_0_0",
}
# By PCI device id, for kernels that have neither: GPUs that are older than both.
_BY_DEVICE: Mapping[str, tuple[range, ...]] = {
    "SI": (range(0x6600, 0x6632), range(0x6660, 0x6670), range(0x6780, 0x67A0), range(0x6800, 0x6840)),
    "CI": (range(0x6640, 0x6660), range(0x67A0, 0x67C0)),
    "KV": (range(0x1304, 0x131E), range(0x9830, 0x9860)),
    "VI": (range(0x67C0, 0x6800), range(0x6900, 0x69A0), range(0x6FDF, 0x6FE0), range(0x7300, 0x7310)),
    "CZ": (range(0x9870, 0x9878), range(0x98E4, 0x98E5)),
    "AI": (
        range(0x66A0, 0x66B0),
        range(0x6860, 0x6880),
        range(0x69A0, 0x69B0),
        range(0x7388, 0x7391),
        range(0x7408, 0x7411),
    ),
    "RV": (range(0x15D8, 0x15DE), range(0x15E7, 0x15E8), range(0x1636, 0x1639), range(0x164C, 0x164D)),
    "NV": (range(0x7310, 0x7370), range(0x73A0, 0x7400), range(0x7420, 0x7440)),
    "VGH": (range(0x163F, 0x1640),),
    "YC": (range(0x164D, 0x164E), range(0x1681, 0x1682)),
}


def find_family(core: Version = (), gfx: str = "", device: int = 0) -> str:
    """Empty if none of them is known. Nothing, empty and 0: sysfs does not say."""
    named = _GFX.fullmatch(gfx)
    target = (int(named[1]), int(named[2], 16), int(named[3], 16)) if named else ()
    return _longest(_BY_CORE, core) or _longest(_BY_TARGET, target) or _of_device(device)


def _longest(table: Mapping[Version, str], version: Version) -> str:
    return next((table[version[:parts]] for parts in (3, 2, 1) if version[:parts] in table), "")


def _of_device(device: int) -> str:
    return next((family for family, ranges in _BY_DEVICE.items() if any(device in some for some in ranges)), "")
