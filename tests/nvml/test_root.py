"""The files around the library are those that a machine with this driver has."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.nvml import Driver, gpus
from tests.nvml.library import compiled_or_skip
from tests.nvml.models import partitioned


@pytest.fixture(autouse=True)
def compiler() -> None:
    compiled_or_skip()


def test_a_gpu_has_its_node_and_its_place_on_the_bus(tmp_path: Path) -> None:
    with Driver(gpus=gpus("H100", 4)).installed(tmp_path) as node:
        device = node.root / "sys/bus/pci/devices/0000:13:00.0"
        assert (device / "numa_node").read_text() == "1\n"
        assert (device / "vendor").read_text() == "0x10de\n"
        assert (device / "device").read_text() == "0x2330\n"
        assert (device / "class").read_text() == "0x030200\n"
        assert (device / "config").read_bytes()[:4] == b"\xde\x10\x30\x23"
        node_3 = node.root / "dev/nvidia3"
        assert node_3.exists()
        if node.has_device_nodes:
            assert (os.major(node_3.stat().st_rdev), os.minor(node_3.stat().st_rdev)) == (195, 3)


def test_mig_instances_have_capabilities(tmp_path: Path) -> None:
    sliced = partitioned(gpus("A100", 2)[1], "3g.20gb", "3g.20gb")
    with Driver(gpus=(gpus("A100")[0], sliced)).installed(tmp_path) as node:
        minors = (node.root / "proc/driver/nvidia-caps/mig-minors").read_text()
        assert "gpu1/gi2/access 156\ngpu1/gi2/ci0/access 157\n" in minors
        access = node.root / "proc/driver/nvidia/capabilities/gpu1/mig/gi2/ci0/access"
        assert access.read_text().startswith("DeviceFileMinor: 157\n")
        capability = (node.root / "dev/nvidia-caps/nvidia-cap157").stat()
        assert stat.S_IMODE(capability.st_mode) == 0o440


def test_a_driver_root_holds_library_files_and_devices(tmp_path: Path) -> None:
    driver = Driver(
        gpus=gpus("T4"),
        library_path="/driver-root/usr/lib64/libnvidia-ml.so.1",
        driver_root="/driver-root",
        driver_root_has_dev=True,
        driver_files=("lib/libcuda.so.580.65.06", "lib/libcuda.so.1 -> libcuda.so.580.65.06", "/usr/bin/nvidia-smi"),
    )
    with driver.installed(tmp_path) as node:
        root = node.root / "driver-root"
        assert (root / "usr/lib64/libnvidia-ml.so.1").resolve().name == "libnvidia-ml.so.580.65.06"
        assert (root / "usr/lib64/libcuda.so.1").exists()
        assert (root / "usr/bin/nvidia-smi").exists()
        assert (root / "dev/nvidiactl").exists()


def test_the_files_follow_a_new_partition(tmp_path: Path) -> None:
    whole = gpus("A100", 2)
    with Driver(gpus=(partitioned(whole[0], "7g.40gb"), whole[1])).installed(tmp_path) as node:
        before = set(node.root.rglob("*"))
        node.become(Driver(gpus=whole[:1]))
        gone = {path.name for path in before - set(node.root.rglob("*"))}
        assert {"nvidia-cap12", "nvidia-cap13", "mig-minors", "nvidia1", whole[1].address} <= gone
        node.become(Driver(gpus=(partitioned(whole[0], "7g.40gb"), whole[1])))
        assert set(node.root.rglob("*")) == before


def test_no_library_no_files_around_it(tmp_path: Path) -> None:
    with Driver(library_path=None, wsl=True).installed(tmp_path) as node:
        assert [path.name for path in (node.root / "usr").rglob("*.so*")] == ["libdxcore.so"]
