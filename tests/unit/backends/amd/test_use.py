"""How busy GPUs are: what the driver shows of whole ones, within bounds, and nothing of partitions."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.amd import machines, tree
from tests.unit.backends.amd.trees import backend

from fairlead.backends.amd import AmdBackend, sysfs
from fairlead.backends.amd import backend as backend_module
from fairlead.backends.amd.use import read_use
from fairlead.kit.clock import SystemClock
from fairlead.kit.hostroot import HostRoot
from fairlead.model.device import Device, Usage
from fairlead.model.errors import BackendError
from fairlead.model.ports import MeasuresUse

FIRST, SECOND = "0000:19:00.0", "0000:1a:00.0"
BUSY, USED, TOTAL = "gpu_busy_percent", "mem_info_vram_used", "mem_info_vram_total"
GIB = machines.GIB


def machine() -> machines.Machine:
    return machines.vegas().change(FIRST, busy="37", vram_used_bytes=3 * GIB, vram_bytes=16 * GIB)


def file(root: Path, name: str) -> Path:
    return root / f"sys/bus/pci/devices/{FIRST}/{name}"


@pytest.fixture
async def amd(tmp_path: Path) -> AsyncIterator[AmdBackend]:
    tree.write(tmp_path, machine())
    opened = backend(tmp_path, SystemClock())
    yield opened
    await opened.close()


async def use(amd: AmdBackend) -> dict[str, Usage]:
    found = await amd.usage((await amd.discover()).devices)
    return {str(device): one for device, one in found.items()}


async def test_whole_gpus_say_how_busy_they_are_and_how_much_memory_is_in_use(amd: AmdBackend):
    assert isinstance(amd, MeasuresUse)
    assert await use(amd) == {FIRST: Usage(0.37, 3 * GIB), SECOND: Usage(0.0, 0)}


async def test_of_partitions_nothing_is_said_and_whole_gpus_beside_them_say_theirs(tmp_path: Path):
    """The driver counts for the GPU: its first partition is the PCI function, and would get the sum of all."""
    cut, whole = machines.mi300x("CPX").gpus[0], machines.mi300x("SPX").gpus[1]
    tree.write(tmp_path, machines.unlinked(machines.Machine((cut, whole))))
    opened = backend(tmp_path, SystemClock())
    devices = (await opened.discover()).devices
    assert len(devices) == 9
    assert (await opened.usage(devices)).keys() == {whole.address}
    await opened.close()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (BUSY, "101", Usage(None, 3 * GIB)),
        (BUSY, "-1", Usage(None, 3 * GIB)),
        (BUSY, "", Usage(None, 3 * GIB)),
        (BUSY, "37 %", Usage(None, 3 * GIB)),
        (BUSY, "³7", Usage(None, 3 * GIB)),
        (BUSY, "9" * 5000, Usage(None, 3 * GIB)),
        (USED, "garbage", Usage(0.37)),
        (USED, str(16 * GIB + 1), Usage(0.37)),  # more than there is
        (USED, "0x10", Usage(0.37)),
        (TOTAL, "garbage", Usage(0.37, 3 * GIB)),
        (TOTAL, "0", Usage(0.37, 3 * GIB)),
    ],
)
async def test_what_makes_no_sense_is_left_out(name: str, text: str, expected: Usage, amd: AmdBackend, tmp_path: Path):
    file(tmp_path, name).write_text(f"{text}\n")
    assert (await use(amd))[FIRST] == expected


async def test_without_a_total_a_number_that_no_gpu_has_is_left_out(amd: AmdBackend, tmp_path: Path):
    file(tmp_path, TOTAL).unlink()
    file(tmp_path, USED).write_text(f"{2**46 + 1}\n")
    assert (await use(amd))[FIRST] == Usage(0.37)


@pytest.mark.parametrize("kind", ["missing", "directory", "pipe", "loop", "refused"])
async def test_a_file_that_cannot_be_read_costs_its_own_number(
    kind: str, amd: AmdBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    at = file(tmp_path, BUSY)
    at.unlink()
    if kind == "directory":
        at.mkdir()
    elif kind == "pipe":
        os.mkfifo(at)
    elif kind == "loop":
        at.symlink_to(at.name)
    elif kind == "refused":
        text = sysfs.text

        def busy(path: str) -> str:
            if path.endswith(f"{FIRST}/{BUSY}"):
                raise OSError(16, "Device or resource busy")
            return text(path)

        monkeypatch.setattr(sysfs, "text", busy)
    assert await use(amd) == {FIRST: Usage(None, 3 * GIB), SECOND: Usage(0.0, 0)}


async def test_a_driver_that_shows_none_of_it_and_a_gpu_that_went_are_left_out(amd: AmdBackend, tmp_path: Path):
    devices = (await amd.discover()).devices
    for name in (BUSY, USED):
        file(tmp_path, name).unlink()
    assert (await amd.usage(devices)).keys() == {SECOND}
    tree.remove(tmp_path, f"sys/bus/pci/drivers/amdgpu/{SECOND}")
    assert await amd.usage(devices) == {}


async def test_a_gpu_that_does_not_answer_is_an_error_in_time_and_holds_up_no_probe(
    amd: AmdBackend, monkeypatch: pytest.MonkeyPatch
):
    devices, text, let_go = (await amd.discover()).devices, sysfs.text, threading.Event()

    def slow(path: str) -> str:
        if path.endswith(BUSY):
            let_go.wait(30)
        return text(path)

    monkeypatch.setattr(sysfs, "text", slow)
    monkeypatch.setattr(backend_module, "PROBE_S", 0.2)
    try:
        with pytest.raises(BackendError, match=r"the use of all GPUs (has not answered|had no turn)"):
            await amd.usage(devices)
        monkeypatch.setattr(backend_module, "PROBE_S", 20)
        assert dict(await amd.probe_all(devices)) == dict.fromkeys((FIRST, SECOND), None)
        assert len((await amd.discover()).devices) == 2
    finally:
        let_go.set()


@given(content=st.binary(max_size=64), name=st.sampled_from([BUSY, USED, TOTAL]))
def test_no_content_of_a_file_breaks_it(content: bytes, name: str):
    with tree.scratch() as root:
        tree.write(root, machine())
        file(root, name).write_bytes(content)
        found = read_use(HostRoot(str(root)), [Device(FIRST, attributes={"gpu": FIRST})])
        for one in found.values():
            assert one.utilization is None or 0 <= one.utilization <= 1
            assert one.memory_used_bytes is None or 0 <= one.memory_used_bytes <= 2**46
