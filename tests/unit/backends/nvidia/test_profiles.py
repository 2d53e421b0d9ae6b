"""What a MIG instance is called, and which nodes lead to it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.backends.nvidia.kernel import parse_mig_minors, sysfs_bus_id
from fairlead.backends.nvidia.profile import GI, name_profile, whole_gb
from fairlead.backends.nvidia.snapshot import MigDevice

GIB = 2**30
A100_40 = 42949672960
H100_80 = 85520809984


@pytest.mark.parametrize(
    ("number", "ci_slices", "memory_mib", "gpu_bytes", "name"),
    [
        (0, 1, 4864, A100_40, "1g.5gb"),
        (7, 1, 4864, A100_40, "1g.5gb+me"),
        (9, 1, 9856, A100_40, "1g.10gb"),
        (2, 3, 19968, A100_40, "3g.20gb"),
        (2, 1, 19968, A100_40, "1c.3g.20gb"),
        (3, 4, 20096, A100_40, "4g.20gb"),
        (4, 7, 40192, A100_40, "7g.40gb"),
        (0, 1, 9984, H100_80, "1g.10gb"),
        (4, 7, 80384, H100_80, "7g.80gb"),
        (13, 1, 24192, 102641958912, "1g.24gb-me"),
        (15, 1, 24192, 102641958912, "1g.24gb+me.all"),
        (17, 3, 48512, 102641958912, "3g.48gb+gfx"),
    ],
)
def test_a_profile_has_the_name_that_nvidia_gives_it(
    number: int, ci_slices: int, memory_mib: int, gpu_bytes: int, name: str
) -> None:
    slices, mark = GI[number]
    given = name_profile(
        gi_slices=slices, ci_slices=ci_slices, mark=mark, memory_mib=memory_mib, gpu_memory_bytes=gpu_bytes
    )
    assert given == name


@given(
    st.sampled_from(sorted(GI)),
    st.integers(1, 8),
    st.integers(1, 200_000),
    st.integers(1, 300 * GIB),
)
def test_any_profile_has_a_name_that_can_stand_in_a_resource(
    number: int, ci_slices: int, memory_mib: int, gpu_bytes: int
) -> None:
    slices, mark = GI[number]
    name = name_profile(
        gi_slices=slices, ci_slices=ci_slices, mark=mark, memory_mib=memory_mib, gpu_memory_bytes=gpu_bytes
    )
    assert re.fullmatch(r"(\d+c\.)?\d+g\.\d+gb([+-]me(\.all)?|\+gfx)?", name)
    assert ("c." in name) == (ci_slices != slices)
    resource = MigDevice("MIG-1", 0, 1, 0, name).resource_profile
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", resource)


@given(st.integers(1, 300), st.integers(1, 8))
def test_so_many_eighths_of_a_gpu_are_so_many_eighths_of_its_name(gib: int, eighths: int) -> None:
    share_mib = gib * 1024 * eighths // 8 - 8  # a profile has a little less memory than its share
    assert abs(whole_gb(share_mib, gib * GIB) - gib * eighths / 8) <= 0.5


def test_the_drivers_table_of_capabilities_is_read_and_the_rest_passed_over() -> None:
    table = "config 1\nmonitor 2\ngpu0/gi3/access 30\n  gpu0/gi3/ci0/access 31\nnonsense\ngpu1/giX/access 7\n\n"
    assert parse_mig_minors(table) == {(0, 3, None): 30, (0, 3, 0): 31}
    assert parse_mig_minors("") == {}


@pytest.mark.parametrize(
    ("nvml", "sysfs"),
    [("00000000:3B:00.0", "0000:3b:00.0"), ("00010000:07:00.0", "00010000:07:00.0"), ("0000:3B:00.0", ":3b:00.0")],
)
def test_bus_ids_are_spelled_as_the_kernel_does(nvml: str, sysfs: str) -> None:
    assert sysfs_bus_id(nvml) == sysfs
