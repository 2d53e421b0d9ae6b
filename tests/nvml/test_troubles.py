"""Events, faults, lost GPUs, slow and hanging calls: as they reach nvidia-ml-py."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pynvml  # type: ignore[import-untyped]  # NVIDIA ships no types
import pytest

from tests.nvml import Driver, Node, gpus
from tests.nvml.answers import Install, handle, refused
from tests.nvml.library import SOURCES

XID = pynvml.nvmlEventTypeXidCriticalError
ECC = pynvml.nvmlEventTypeDoubleBitEccError
LONG_MS = 20_000  # a wait that ends when something happens
NONE = 0xFFFFFFFF


@pytest.fixture
def node(install: Install) -> Node:
    return install(Driver(gpus=gpus("A100", 3)))


def listen(*indexes: int, types: int = XID | ECC) -> object:
    events = pynvml.nvmlEventSetCreate()
    for index in indexes:
        pynvml.nvmlDeviceRegisterEvents(handle(index), types, events)
    return events


def watches() -> int:
    """Of files, that this process has open."""
    return sum("inotify" in str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink())


def in_background(call: Callable[[], object]) -> Callable[[], object]:
    """Starts it; the answer is what waits for its end."""
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append(call())
        except pynvml.NVMLError as error:
            answers.append(error.value)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end() -> object:
        thread.join(LONG_MS / 1000)
        assert answers, "the call did not come back"
        return answers[0]

    return end


def test_the_last_shutdown_closes_what_was_forgotten(node: Node) -> None:
    before = watches()
    listen(0)
    listen(1, 2)
    assert watches() == before + 2
    pynvml.nvmlShutdown()
    assert watches() == before
    pynvml.nvmlInit()


def test_a_wait_ends_with_the_event(node: Node) -> None:
    events = listen(0, 1)
    waiting = in_background(lambda: pynvml.nvmlEventSetWait_v2(events, LONG_MS))
    node.xid(1, 79)
    data = waiting()
    assert isinstance(data, pynvml.c_nvmlEventData_t)
    assert pynvml.nvmlDeviceGetIndex(data.device) == 1
    assert (data.eventType, data.eventData, data.gpuInstanceId, data.computeInstanceId) == (XID, 79, NONE, NONE)


def test_an_event_names_the_instance_it_befell(node: Node) -> None:
    events = listen(0)
    node.xid(0, 43, gi=2, ci=0)
    data = pynvml.nvmlEventSetWait_v2(events, LONG_MS)
    assert (data.gpuInstanceId, data.computeInstanceId) == (2, 0)


def test_events_come_in_order_and_to_every_set(node: Node) -> None:
    sets = [listen(0, 1), listen(1, types=ECC)]
    node.xid(0, 31)
    node.event(1, ECC, 0)
    node.xid(1, 48)
    assert [pynvml.nvmlEventSetWait_v2(sets[0], LONG_MS).eventData for _ in range(3)] == [31, 0, 48]
    assert pynvml.nvmlEventSetWait_v2(sets[1], LONG_MS).eventType == ECC
    refused(pynvml.NVML_ERROR_TIMEOUT, pynvml.nvmlEventSetWait_v2, sets[1], 0)


def test_what_happened_before_is_not_told(node: Node) -> None:
    node.xid(0, 79)
    refused(pynvml.NVML_ERROR_TIMEOUT, pynvml.nvmlEventSetWait_v2, listen(0), 0)


def test_a_gpu_that_reports_no_xids_refuses_to_be_registered(install: Install) -> None:
    install(Driver(gpus=gpus("T4", 1, events=0)))
    assert pynvml.nvmlDeviceGetSupportedEventTypes(handle()) == 0
    refused(pynvml.NVML_ERROR_NOT_SUPPORTED, listen, 0)


def test_a_wait_may_fail_once_or_for_good(node: Node) -> None:
    events = listen(0)
    node.fail_wait(pynvml.NVML_ERROR_UNKNOWN)
    refused(pynvml.NVML_ERROR_UNKNOWN, pynvml.nvmlEventSetWait_v2, events, LONG_MS)
    refused(pynvml.NVML_ERROR_TIMEOUT, pynvml.nvmlEventSetWait_v2, events, 0)
    waiting = in_background(lambda: pynvml.nvmlEventSetWait_v2(events, LONG_MS))
    node.fault("nvmlEventSetWait", pynvml.NVML_ERROR_GPU_IS_LOST)
    assert waiting() == pynvml.NVML_ERROR_GPU_IS_LOST
    refused(pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.nvmlEventSetWait_v2, events, LONG_MS)


def test_a_fault_strikes_one_function_of_one_gpu(node: Node) -> None:
    node.fault("nvmlDeviceGetPciInfo", pynvml.NVML_ERROR_UNKNOWN, gpu=1)
    refused(pynvml.NVML_ERROR_UNKNOWN, pynvml.nvmlDeviceGetPciInfo, handle(1))
    pynvml.nvmlDeviceGetPciInfo(handle(0))
    pynvml.nvmlDeviceGetName(handle(1))
    node.mend()
    pynvml.nvmlDeviceGetPciInfo(handle(1))


def test_a_lost_gpu_answers_nothing_and_wakes_who_listens_to_it(node: Node) -> None:
    it, events = handle(2), listen(0, 2)
    waiting = in_background(lambda: pynvml.nvmlEventSetWait_v2(events, LONG_MS))
    node.lose(2)
    assert waiting() == pynvml.NVML_ERROR_GPU_IS_LOST
    refused(pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.nvmlDeviceGetMemoryInfo, it)
    refused(pynvml.NVML_ERROR_GPU_IS_LOST, handle, 2)
    refused(pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.nvmlDeviceGetTopologyCommonAncestor, handle(0), it)
    assert pynvml.nvmlDeviceGetCount() == 3
    node.xid(0, 31)
    assert pynvml.nvmlEventSetWait_v2(events, LONG_MS).eventData == 31
    node.find(2)
    assert pynvml.nvmlDeviceGetMemoryInfo(it).total


def test_a_hanging_call_holds_up_no_other(node: Node) -> None:
    it = handle(0)
    node.hang("nvmlDeviceGetMemoryInfo", gpu=0)
    hanging = in_background(lambda: pynvml.nvmlDeviceGetMemoryInfo(it).total)
    assert pynvml.nvmlDeviceGetMemoryInfo(handle(1)).total
    assert pynvml.nvmlDeviceGetName(it)
    node.mend()
    assert hanging()


def test_a_slow_call_comes_back(node: Node) -> None:
    node.slow("nvmlDeviceGetName", 5, gpu=1)
    assert pynvml.nvmlDeviceGetName(handle(1)) == "NVIDIA A100-SXM4-40GB"


def test_a_set_that_is_freed_while_somebody_waits(node: Node) -> None:
    events = listen(0)
    waiting = in_background(lambda: pynvml.nvmlEventSetWait_v2(events, LONG_MS))
    pynvml.nvmlEventSetFree(events)
    node.xid(0, 79)
    waiting()


def test_a_driver_that_comes_late(tmp_path: Path) -> None:
    driver = Driver(gpus=gpus("T4", 1))
    with driver.installed(tmp_path) as node, node.loaded() as nvml:
        node.unload()
        refused(nvml.NVML_ERROR_DRIVER_NOT_LOADED, nvml.nvmlInit)
        refused(nvml.NVML_ERROR_UNINITIALIZED, nvml.nvmlDeviceGetCount)
        node.become(driver)
        nvml.nvmlInit()
        assert nvml.nvmlDeviceGetCount() == 1


def test_nvmlinit_may_fail(tmp_path: Path) -> None:
    with Driver().installed(tmp_path) as node, node.loaded() as nvml:
        node.fault("nvmlInit", nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        refused(nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, nvml.nvmlInit)
        # The binding has texts of its own; programs in other languages ask the library.
        assert nvml.nvmlErrorString(nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH) == "Driver/library version mismatch"


def test_another_process_sees_the_same_driver(tmp_path: Path) -> None:
    program = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    with Driver(gpus=gpus("L40S", 5)).installed(tmp_path) as node:
        done = subprocess.run([sys.executable, "-c", program], env=node.env, capture_output=True, text=True, check=True)
    assert done.stdout == "5\n"


def test_the_library_has_every_function_that_the_binding_looks_up(node: Node) -> None:
    source = Path(pynvml.__file__).read_text()
    asked = {part.split('"')[0] for part in source.split('_nvmlGetFunctionPointer("')[1:]}
    assert len(asked) > 300
    names = (SOURCES / "names.h").read_text()
    assert {name for name in asked if f"REST({name})" not in names} == set()
    refused(pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.nvmlDeviceGetEncoderCapacity, handle(), 0)


def test_an_event_may_name_no_gpu(node: Node):
    events = listen(0, 1)
    node.stray(79)
    told = pynvml.nvmlEventSetWait_v2(events, LONG_MS)
    assert (bool(told.device), told.eventType, told.eventData) == (False, XID, 79)
