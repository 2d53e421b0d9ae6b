"""What is read of a machine beside its driver: virtual GPUs, GPUs handed through, names, CUDA's own library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.backends.nvidia import cuda
from fairlead.model.errors import BackendError
from fairlead.programs.labels.catalogue import Facts, Vgpu, family, make_labels, sanitise
from fairlead.programs.labels.machine import parse_vgpu, read_classes, read_machine, read_vgpus, vfio_snapshot


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("NVIDIA-TITAN-X-(Pascal)", "NVIDIA-TITAN-X-Pascal"),
        ("some ( thing )else", "some-thing-else"),
        (" input  with multiple   spaces   ", "input-with-multiple-spaces"),
        ("", ""),
    ],
)
def test_sanitise(text: str, clean: str):
    assert sanitise(text) == clean


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ((3, 5), "kepler"),
        ((7, 0), "volta"),
        ((7, 5), "turing"),
        ((8, 6), "ampere"),
        ((8, 9), "ada-lovelace"),
        ((9, 0), "hopper"),
        ((11, 0), "blackwell"),
        ((99, 0), "undefined"),
    ],
)
def test_families(version: tuple[int, int], name: str):
    assert family(*version) == name


def config_space(capability: bytes, at: int = 0x80) -> bytes:
    space = bytearray(256)
    space[0x34] = at
    space[at : at + len(capability)] = capability
    return bytes(space)


def test_a_virtual_gpu_says_who_its_host_is():
    record = bytes([0, 22]) + b"460.16\0\0\0\0" + b"r460_00\0\0\0"
    body = bytes([0x09, 0, 5 + len(record)]) + b"VF" + record
    assert parse_vgpu(config_space(body)) == Vgpu("460.16", "r460_00")
    labels, _ = make_labels(Facts(vgpus=(Vgpu("460.16", "r460_00"),)), "none", "none", {})
    assert labels == {
        "nvidia.com/vgpu.present": "true",
        "nvidia.com/vgpu.host-driver-version": "460.16",
        "nvidia.com/vgpu.host-driver-branch": "r460_00",
    }


def test_what_is_no_virtual_gpu():
    assert parse_vgpu(bytes(64)) is None
    assert parse_vgpu(config_space(bytes([0x09, 0, 20]) + b"XX" + bytes(15))) is None
    assert parse_vgpu(config_space(bytes([0x10, 0x80, 0]))) is None  # a chain that bites its tail


@given(st.binary(min_size=0, max_size=300))
def test_any_bytes_are_read_to_their_end(raw: bytes):
    parse_vgpu(raw)


def make_pci(root: Path, address: str, driver: str | None, **files: str) -> None:
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    for name, text in files.items():
        (device / name).write_text(text)
    if driver:
        (device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")


def test_gpus_that_are_handed_through_to_virtual_machines(tmp_path: Path):
    bars = "0x0 0x0 0x0\n0x38f000000000 0x38f7ffffffff 0x0014220c\n"
    make_pci(
        tmp_path,
        "0000:07:00.0",
        "vfio-pci",
        vendor="0x10de",
        device="0x2330",
        **{"class": "0x030200", "resource": bars},
    )
    make_pci(tmp_path, "0000:08:00.0", "nvidia", vendor="0x10de", device="0x2330", **{"class": "0x030200"})
    make_pci(tmp_path, "0000:09:00.0", "vfio-pci", vendor="0x8086", device="0x1", **{"class": "0x030000"})
    ids = tmp_path / "usr/share/misc/pci.ids"
    ids.parent.mkdir(parents=True)
    ids.write_text(
        "8086  Intel\n\t2330  Other\n10de  NVIDIA Corporation\n\t2330  GH100 [H100 SXM5 80GB]\n\t\t10de 1  x\n"
    )
    snapshot = vfio_snapshot(str(tmp_path))
    assert [(gpu.bus_id, gpu.name, gpu.memory_bytes) for gpu in snapshot.gpus] == [
        ("0000:07:00.0", "H100 SXM5 80GB", 32 * 2**30)
    ]
    labels, _ = make_labels(Facts(snapshot, classes=read_classes(snapshot.gpus, str(tmp_path))), "none", "none", {})
    assert labels["nvidia.com/gpu.product"] == "H100-SXM5-80GB"
    assert labels["nvidia.com/gpu.mode"] == "compute"
    assert labels["nvidia.com/cuda.driver-version.major"] == "unknown"
    assert "nvidia.com/gpu.compute.major" not in labels


def test_a_machine_without_files(tmp_path: Path):
    assert read_machine(str(tmp_path / "none")) == "unknown"
    assert read_machine("") == "unknown"
    assert read_vgpus(str(tmp_path)) is None
    assert vfio_snapshot(str(tmp_path)).gpus == ()


CUDA = """
int cuInit(int flags) { return %(init)d; }
int cuDriverGetVersion(int *v) { *v = 12020; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { s[0] = 'O'; s[1] = 'r'; s[2] = 'i'; s[3] = 'n'; s[4] = 0; return 0; }
int cuDeviceTotalMem_v2(unsigned long *b, int d) { *b = 1UL << 34; return 0; }
int cuDeviceGetAttribute(int *v, int what, int d) { *v = what == 75 ? 8 : 7; return 0; }
"""


@pytest.fixture
def compiler() -> str:
    found = shutil.which("cc")
    if found is None:
        pytest.skip("no C compiler, so no stand-in for CUDA's library")
    return found


def build(compiler: str, directory: Path, source: str) -> str:
    (directory / "cuda.c").write_text(source)
    library = directory / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, directory / "cuda.c"], check=True)
    return str(library)


def test_a_system_on_a_chip_is_labelled_by_cuda(compiler: str, tmp_path: Path):
    snapshot = cuda.snapshot(build(compiler, tmp_path, CUDA % {"init": 0}))
    labels, _ = make_labels(Facts(snapshot), "none", "none", {})
    assert labels["nvidia.com/gpu.product"] == "Orin"
    assert labels["nvidia.com/gpu.memory"] == "16384"
    assert labels["nvidia.com/gpu.compute.minor"] == "7"
    assert labels["nvidia.com/cuda.runtime-version.full"] == "12.2"
    assert labels["nvidia.com/cuda.driver-version.full"] == "unknown.unknown.unknown"


def test_cuda_that_does_not_start_is_told(compiler: str, tmp_path: Path):
    with pytest.raises(BackendError, match="cuInit failed with CUDA error 999"):
        cuda.snapshot(build(compiler, tmp_path, CUDA % {"init": 999}))
    with pytest.raises(BackendError, match="cannot be loaded"):
        cuda.snapshot(str(tmp_path / "none.so"))
