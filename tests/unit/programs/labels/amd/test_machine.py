"""What is read of machines with AMD GPUs for their labels; and what is garbage costs itself only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.amd import machines, tree
from tests.amd.machines import Machine

from fairlead.kit.hostroot import HostRoot
from fairlead.model.errors import BackendError, NotYet
from fairlead.programs.labels.amd.catalogue import KINDS, Facts, make_labels
from fairlead.programs.labels.amd.machine import BLOCKS, parse_firmware, read_facts

FIRST = "sys/bus/pci/devices/0000:19:00.0"


def look(root: Path) -> tuple[Facts, tuple[str, ...]]:
    return read_facts(HostRoot(str(root)))


def labels(root: Path, *kinds: str) -> dict[str, str]:
    return make_labels(look(root)[0], kinds or KINDS)[0]


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def vegas(tmp_path: Path) -> Path:
    return tree.write(tmp_path, machines.vegas())


def test_whole_gpus(tmp_path: Path):
    tree.write(tmp_path, machines.mi300x())
    assert labels(tmp_path) == {
        **{f"{prefix}family": "AI" for prefix in ("amd.com/gpu.", "beta.amd.com/gpu.")},
        **{f"{prefix}device-id": "74a1" for prefix in ("amd.com/gpu.", "beta.amd.com/gpu.")},
        **{f"{prefix}product-name": "AMD_Instinct_MI300X_OAM" for prefix in ("amd.com/gpu.", "beta.amd.com/gpu.")},
        **{f"{prefix}vram": "192G" for prefix in ("amd.com/gpu.", "beta.amd.com/gpu.")},
        **{f"{prefix}simd-count": "1216" for prefix in ("amd.com/gpu.", "beta.amd.com/gpu.")},
        **{f"{prefix}cu-count": "304" for prefix in ("amd.com/gpu.", "beta.amd.com/gpu.")},
        "beta.amd.com/gpu.family.AI": "8",
        "beta.amd.com/gpu.device-id.74a1": "8",
        "beta.amd.com/gpu.product-name.AMD_Instinct_MI300X_OAM": "8",
        "beta.amd.com/gpu.vram.192G": "8",
        "beta.amd.com/gpu.simd-count.1216": "8",
        "beta.amd.com/gpu.cu-count.304": "8",
        "amd.com/gpu.driver-version": "6.8.5",
        "amd.com/gpu.driver-src-version": "8A62C5B9E2D1F3A4B7C6D5E",
        "amd.com/gpu.compute-memory-partition": "spx_nps1",
        "amd.com/gpu.compute-partitioning-supported": "true",
        "amd.com/gpu.memory-partitioning-supported": "true",
    }


def test_partitions_count_where_kfd_knows_them_and_gpus_elsewhere(tmp_path: Path):
    tree.write(tmp_path, machines.virtual())
    found = labels(tmp_path)
    assert found["beta.amd.com/gpu.vram.24G"] == "8"
    assert found["beta.amd.com/gpu.cu-count.38"] == "8"
    assert found["beta.amd.com/gpu.device-id.74a1"] == "1"
    assert found["beta.amd.com/gpu.family.AI"] == "1"
    assert found["amd.com/gpu.compute-memory-partition"] == "cpx_nps1"


def test_an_old_kernel(vegas: Path):
    found = labels(vegas)
    assert found["amd.com/gpu.family"] == "AI"
    assert found["amd.com/gpu.vram"] == "16G"
    assert found["amd.com/gpu.product-name"] == "AMD_Instinct_MI25"
    assert found["amd.com/gpu.compute-partitioning-supported"] == "false"
    assert "amd.com/gpu.compute-memory-partition" not in found


def test_memory_without_banks_is_what_the_driver_says(tmp_path: Path):
    small = Machine(machines.mi210().gpus[:1])
    tree.write(tmp_path, small)
    assert labels(tmp_path, "vram")["amd.com/gpu.vram"] == "64G"


def test_partitioning_is_supported_if_any_gpu_can(tmp_path: Path):
    """The first one is of another kind."""
    plain, can = machines.mi210().gpus[2], machines.mi300x().gpus[7]
    tree.write(tmp_path, Machine((plain, can)))
    assert labels(tmp_path, "compute-partitioning-supported") == {"amd.com/gpu.compute-partitioning-supported": "true"}


def test_the_graphics_core_decides_before_the_compiler(vegas: Path):
    for name, number in (("major", 11), ("minor", 0), ("revision", 4)):
        put(vegas, f"{FIRST}/ip_discovery/die/0/GC/0/{name}", f"{number}\n")
    assert labels(vegas, "family")["amd.com/gpu.family.GC_11_0_1"] == "1"
    put(vegas, f"{FIRST}/ip_discovery/die/0/GC/0/minor", "x\n")
    assert labels(vegas, "family")["amd.com/gpu.family"] == "AI"


def test_a_name_comes_from_the_list_of_libdrm(vegas: Path):
    put(vegas, f"{FIRST}/revision", "0xc1\n")
    put(vegas, "usr/share/libdrm/amdgpu.ids", "# List\n1.0.0\n6860,\tC1,\tAMD Radeon Pro (WX)\nbad\n6860, zz, x\n")
    assert labels(vegas, "product-name")["amd.com/gpu.product-name.AMD_Radeon_Pro_WX"] == "1"


@pytest.mark.parametrize("text", ["6860, 00, x\n" * 2**18, "6860,00,x" + " " * 2**19 + "y\n", "6860, 00,\n" * 9999])
def test_a_list_of_libdrm_that_is_absurd_takes_no_time(vegas: Path, text: str):
    put(vegas, "usr/share/libdrm/amdgpu.ids", text)
    assert labels(vegas, "product-name")["amd.com/gpu.product-name"] == "AMD_Instinct_MI25"


def test_firmware_of_sysfs_and_features_of_debugfs(vegas: Path):
    put(vegas, f"{FIRST}/fw_version/mec_fw_version", "0x000001b8\n")
    put(vegas, f"{FIRST}/fw_version/sdma_fw_version", "0xffffffff\n")
    put(vegas, f"{FIRST}/fw_version/sos_fw_version", "0x1\n")
    put(vegas, f"{FIRST}/fw_version/uvd_fw_version", "garbage\n")
    put(vegas, "sys/kernel/debug/dri/1/amdgpu_firmware_info", "ME feature version: 35, firmware version: 0x00000094\n")
    assert labels(vegas, "firmware") == {
        "beta.amd.com/gpu.firmware.ME.feat.35": "1",
        "beta.amd.com/gpu.firmware.ME.fw.148": "1",
        "beta.amd.com/gpu.firmware.MEC.fw.440": "1",
        "beta.amd.com/gpu.firmware.SDMA0.fw.4294967295": "1",
    }


def test_another_vendor_has_no_labels(vegas: Path):
    put(vegas, f"{FIRST}/vendor", "0x10de\n")
    facts, problems = look(vegas)
    assert len(facts.gpus) == 1
    assert problems == ("0000:19:00.0 has no labels: its vendor is 0x10de, and AMD's is 0x1002",)


# --- What is not as it should be --------------------------------------------------------------------------------------


def test_without_a_driver_nothing_is_known(tmp_path: Path):
    with pytest.raises(NotYet, match="amdgpu is not loaded"):
        look(tmp_path)


def test_a_driver_without_gpus_is_known_to_have_none(tmp_path: Path):
    tree.write(tmp_path, Machine(()))
    (tmp_path / "sys/bus/pci/drivers/amdgpu").mkdir(parents=True, exist_ok=True)
    assert look(tmp_path)[0].gpus == ()


@pytest.mark.parametrize(
    "file", ["device", "product_name", "numa_node", "vendor", "revision", "fw_version/me_fw_version"]
)
@pytest.mark.parametrize("content", ["huge", "binary", "empty", "loop", "directory", "fifo"])
def test_a_file_that_is_wrong_costs_its_own_fact(vegas: Path, file: str, content: str):
    path = vegas / FIRST / file
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    match content:
        case "huge":
            path.write_bytes(b"0" * 2**20)
        case "binary":
            path.write_bytes(bytes(range(256)))
        case "empty":
            path.write_bytes(b"")
        case "loop":
            path.symlink_to(path.name)
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
    found = labels(vegas)
    assert found["amd.com/gpu.simd-count"] == "256"
    assert found["beta.amd.com/gpu.simd-count.256"] == "2"
    assert found["amd.com/gpu.vram"] == "16G"


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=200), file=st.sampled_from(["device", "product_name", "ip_discovery/die/0/GC/0/major"])
)
def test_no_content_of_a_file_breaks_a_look(vegas: Path, content: bytes, file: str):
    path = vegas / FIRST / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    assert labels(vegas)["beta.amd.com/gpu.simd-count.256"] == "2"


@given(st.text(max_size=300))
def test_any_text_of_debugfs_can_be_read(text: str):
    features, firmware = parse_firmware(text)
    assert features.keys() == firmware.keys()


def test_kfd_that_cannot_be_listed_is_an_error_and_no_empty_answer(vegas: Path):
    nodes = vegas / "sys/devices/virtual/kfd/kfd/topology/nodes"
    nodes.rename(nodes.with_name("away"))
    nodes.write_text("")
    with pytest.raises(BackendError):
        look(vegas)


def test_every_block_of_amds_has_a_file():
    assert len(BLOCKS) == 10
