"""The family of a GPU, from what sysfs has instead of libdrm's number."""

from __future__ import annotations

import pytest

from fairlead.programs.labels.amd.families import find_family


@pytest.mark.parametrize(
    ("core", "gfx", "device", "family"),
    [
        ((9, 4, 3), "gfx942", 0x74A1, "AI"),
        ((), "gfx90a", 0x740F, "AI"),
        ((), "", 0x6860, "AI"),
        ((9, 3, 0), "gfx90c", 0x1638, "RV"),
        ((), "gfx90c", 0x1638, "RV"),
        ((), "", 0x1638, "RV"),
        ((10, 3, 7), "gfx1036", 0x1506, "GC_10_3_7"),
        ((), "gfx1036", 0x164E, "GC_10_3_6"),
        ((10, 3, 1), "gfx1033", 0x163F, "VGH"),
        ((10, 3, 3), "gfx1035", 0x1681, "YC"),
        ((10, 1, 10), "gfx1010", 0x731F, "NV"),
        ((11, 0, 3), "gfx1101", 0x7470, "GC_11_0_0"),
        ((11, 0, 1), "gfx1103", 0x15BF, "GC_11_0_1"),
        ((11, 5, 1), "gfx1151", 0x1586, "GC_11_5_0"),
        ((12, 0, 1), "gfx1201", 0x7550, "GC_12_0_0"),
        ((), "gfx701", 0x67A0, "CI"),
        ((), "gfx700", 0x1304, "KV"),
        ((), "gfx803", 0x67DF, "VI"),
        ((), "gfx801", 0x9874, "CZ"),
        ((), "", 0x6798, "SI"),
        ((), "", 0x67B1, "CI"),
        ((), "", 0x9830, "KV"),
        ((), "", 0x67DF, "VI"),
        ((), "", 0x9874, "CZ"),
        ((), "", 0x73BF, "NV"),
        ((), "", 0x163F, "VGH"),
        ((), "", 0x164D, "YC"),
        ((99, 0, 0), "gfx9900", 0xFFFF, ""),
        ((), "", 0, ""),
    ],
)
def test_the_best_that_is_known_decides(core: tuple[int, ...], gfx: str, device: int, family: str):
    assert find_family(core, gfx, device) == family


def test_an_unknown_core_falls_back_to_the_next_number():
    assert find_family((99, 0, 0), "gfx942") == "AI"
