"""AMD's labels of what is known of the GPUs, and which labels of a node are such."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.programs.labels.amd.catalogue import BETA, KINDS, PREFIX, Facts, Gpu, is_ours, make_labels

NAME = re.compile(r"(beta\.)?amd\.com/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def labels(kind: str, *gpus: Gpu, **facts: Any) -> dict[str, str]:
    return make_labels(Facts(gpus, **facts), [kind])[0]


@pytest.mark.parametrize(
    ("size_bytes", "value"),
    [(17163091968, "16G"), (51522830336, "48G"), (51539607552, "48G"), (2**39, "512G"), (512 * 2**20, "1G")],
)
def test_memory_is_rounded_to_gib(size_bytes: int, value: str):
    assert labels("vram", Gpu(vram_bytes=size_bytes)) == {
        "amd.com/gpu.vram": value,
        "beta.amd.com/gpu.vram": value,
        f"beta.amd.com/gpu.vram.{value}": "1",
    }


@pytest.mark.parametrize(("simds", "units"), [(416, "104"), (80, "20"), (152, "38"), (256, "64")])
def test_compute_units_are_simds_by_simds_of_a_unit(simds: int, units: str):
    assert labels("cu-count", Gpu(simds=simds, simds_per_cu=4))["amd.com/gpu.cu-count"] == units
    assert labels("simd-count", Gpu(simds=simds))["amd.com/gpu.simd-count"] == str(simds)


def test_several_values_are_counted_under_both_prefixes():
    assert labels("device-id", *[Gpu(device_id="740f")] * 7, Gpu(device_id="74a1")) == {
        f"{prefix}device-id.{value}": count
        for prefix in (PREFIX, BETA)
        for value, count in (("740f", "7"), ("74a1", "1"))
    }


def test_firmware_is_counted_under_beta():
    gpus = [Gpu(firmware={"ME": 148}, features={"ME": 35})] * 2 + [Gpu(firmware={"ME": 149})]
    assert labels("firmware", *gpus) == {
        "beta.amd.com/gpu.firmware.ME.feat.35": "2",
        "beta.amd.com/gpu.firmware.ME.fw.148": "2",
        "beta.amd.com/gpu.firmware.ME.fw.149": "1",
    }


def test_a_partition_is_a_label_while_all_gpus_have_the_same():
    kind = "compute-memory-partition"
    assert labels(kind, Gpu(partition="cpx_nps4"), Gpu(), Gpu(partition="cpx_nps4")) == {PREFIX + kind: "cpx_nps4"}
    assert labels(kind, Gpu(partition="cpx_nps4"), Gpu(partition="spx_nps1")) == {}
    assert make_labels(Facts((Gpu(),)), [kind]) == ({}, [])


def test_what_the_node_can_do_is_said_either_way():
    assert labels("compute-partitioning-supported", compute_partitioning=True) == {
        "amd.com/gpu.compute-partitioning-supported": "true"
    }
    assert labels("memory-partitioning-supported") == {"amd.com/gpu.memory-partitioning-supported": "false"}


def test_what_sysfs_does_not_say_is_no_label_but_a_note():
    found, notes = make_labels(Facts((Gpu(),)), ["driver-version", "vram"])
    assert found == {}
    assert notes == [
        "-driver-version: sysfs has no value for it, so the label is not written",
        "-vram: sysfs has no value for it, so the label is not written",
    ]
    assert make_labels(Facts(), KINDS)[1] == []


def test_a_value_that_is_too_long_or_odd_is_cut_and_the_others_are_written():
    gpus = (Gpu(product="A/B " + 70 * "x", device_id="740f"),)
    found, notes = make_labels(Facts(gpus), ["product-name", "device-id"])
    assert found["amd.com/gpu.product-name"] == "AB_" + 60 * "x"
    assert found[f"beta.amd.com/gpu.product-name.AB_{43 * 'x'}"] == "1"
    assert found["amd.com/gpu.device-id"] == "740f"
    assert ["-product-name: 'A/B_" in note for note in notes] == [True, True]


def test_a_value_without_a_letter_is_left_out():
    found, notes = make_labels(Facts((Gpu(product="(--)"),)), ["product-name"])
    assert found == {}
    assert notes[0] == "-product-name: '--' is not valid in a label and is not written"


def test_values_that_are_cut_to_the_same_name_count_together():
    gpus = [Gpu(product=50 * "x" + end) for end in "ab"]
    assert labels("product-name", *gpus)[f"{PREFIX}product-name.{46 * 'x'}"] == "2"


@given(
    st.lists(
        st.builds(
            Gpu,
            device_id=st.text(max_size=80),
            product=st.text(max_size=120),
            vram_bytes=st.integers(0, 2**64),
            simds=st.integers(0, 2**32),
            simds_per_cu=st.integers(0, 8),
            partition=st.text(max_size=80),
            firmware=st.dictionaries(st.sampled_from(["ME", "SDMA0"]), st.integers(0, 2**32)),
        ),
        max_size=4,
    ),
    st.text(max_size=100),
)
def test_kubernetes_takes_whatever_is_made_and_the_next_round_can_remove_it(gpus: list[Gpu], version: str):
    found, _ = make_labels(Facts(tuple(gpus), driver_version=version), KINDS)
    for name, value in found.items():
        assert NAME.fullmatch(name)
        assert VALUE.fullmatch(value)
        assert is_ours(name, value)


# --- Clean-up ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("amd.com/gpu.family", "AI"),
        ("beta.amd.com/gpu.family", "HPC"),
        ("beta.amd.com/gpu.family.HPC", "1"),
        ("amd.com/gpu.device-id.740f", "3"),
        ("beta.amd.com/gpu.firmware.VCE.fw.1", "1"),
        ("amd.com/gpu.driver-version", ""),
    ],
)
def test_what_amds_labeller_wrote_is_ours_to_remove(name: str, value: str):
    assert is_ours(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("amd.com/gpu", "true"),
        ("amd.com/cpu", "x"),
        ("amd.com/mi300x", "y"),
        ("amd.com/gpu.mode", "vf-passthrough"),
        ("amd.com/gpu.familys", "1"),
        ("amd.com/gpu.firmware.policy", "strict"),
        ("example.com/amd.com/gpu.family", "AI"),
        ("nvidia.com/gpu.family", "hopper"),
    ],
)
def test_labels_of_others_are_not(name: str, value: str):
    assert not is_ours(name, value)
