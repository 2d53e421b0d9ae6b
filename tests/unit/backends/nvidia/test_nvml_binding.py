"""Our binding against NVIDIA's own: the same names, numbers and layouts."""

from __future__ import annotations

import ast
import ctypes
import inspect
from pathlib import Path

import pynvml  # type: ignore[import-untyped]  # NVIDIA ships no types
import pytest
from tests.nvml.library import compiled_or_skip

from fairlead.backends.nvidia import events, links, nvml, profile
from fairlead.backends.nvidia.errors import NvmlError

THEIRS = Path(inspect.getfile(pynvml)).read_text()
LAYOUTS = {
    nvml.PciInfo: pynvml.nvmlPciInfo_t,
    nvml.Memory: pynvml.c_nvmlMemory_t,
    nvml.EventData: pynvml.c_nvmlEventData_t,
    nvml.Attributes: pynvml.c_nvmlDeviceAttributes,
    nvml.Placement: pynvml.c_nvmlGpuInstancePlacement_t,
    nvml.GpuInstanceInfo: pynvml.c_nvmlGpuInstanceInfo_t,
    nvml.ComputeInstanceInfo: pynvml.c_nvmlComputeInstanceInfo_t,
    nvml.GpuInstanceProfile: pynvml.c_nvmlGpuInstanceProfileInfo_t,
    nvml.ComputeInstanceProfile: pynvml.c_nvmlComputeInstanceProfileInfo_t,
    nvml.Fabric: pynvml.c_nvmlGpuFabricInfo_v2_t,
    nvml.Addressing: pynvml.c_nvmlDeviceAddressingMode_t,
    nvml.FieldValue: pynvml.c_nvmlFieldValue_t,
}
NUMBERS = {
    "INVALID_ARGUMENT": pynvml.NVML_ERROR_INVALID_ARGUMENT,
    "NOT_SUPPORTED": pynvml.NVML_ERROR_NOT_SUPPORTED,
    "NOT_FOUND": pynvml.NVML_ERROR_NOT_FOUND,
    "TIMEOUT": pynvml.NVML_ERROR_TIMEOUT,
    "FUNCTION_NOT_FOUND": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    "GPU_IS_LOST": pynvml.NVML_ERROR_GPU_IS_LOST,
    "RESET_REQUIRED": pynvml.NVML_ERROR_RESET_REQUIRED,
    "UNKNOWN": pynvml.NVML_ERROR_UNKNOWN,
    "DOUBLE_BIT": pynvml.nvmlEventTypeDoubleBitEccError,
    "XID": pynvml.nvmlEventTypeXidCriticalError,
    "UNAVAILABLE": pynvml.nvmlEventTypeGpuUnavailableError,
    "GI_PROFILES": pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT,
    "ENGINE_SHARED": pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
    "NVLINKS": pynvml.NVML_NVLINK_MAX_LINKS,
    "LINK_TO_SWITCH": pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH,
    "ADDRESSING_ATS": pynvml.NVML_DEVICE_ADDRESSING_MODE_ATS,
    "RECOVERY_ACTION": pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
    "FABRIC_V2": pynvml.nvmlGpuFabricInfo_v2,
    "ADDRESSING_V1": pynvml.nvmlDeviceAddressingMode_v1,
}


@pytest.mark.parametrize("ours", LAYOUTS, ids=lambda layout: layout.__name__)
def test_a_structure_is_laid_out_as_in_nvidias_binding(ours: type[ctypes.Structure]) -> None:
    theirs = LAYOUTS[ours]
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)
    assert _layout(ours) == _layout(theirs)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_nvidias(name: str) -> None:
    assert getattr(nvml, name) == NUMBERS[name]


def test_every_function_that_is_called_exists_in_nvidias_binding() -> None:
    tree = ast.parse(inspect.getsource(nvml))
    called = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    functions = {name for name in called if name.startswith("nvml") and name.isidentifier()}
    assert len(functions) > 30
    # Theirs starts with flags, which needs a newer driver than ours does.
    assert {name for name in functions if f'"{name}"' not in THEIRS} == {"nvmlInit_v2"}


def test_every_profile_of_gpu_instances_has_a_name_of_its_own_kind() -> None:
    theirs = {
        getattr(pynvml, name): name.removeprefix("NVML_GPU_INSTANCE_PROFILE_")
        for name in dir(pynvml)
        if name.startswith("NVML_GPU_INSTANCE_PROFILE_") and name[-5:] != "COUNT"
    }
    marks = {"GFX": "+gfx", "NO_ME": "-me", "ALL_ME": "+me.all", "REV1": "+me", "REV2": "", "SLICE": ""}
    expected = {
        number: (int(name[0]), next(mark for end, mark in marks.items() if name.endswith(end)))
        for number, name in theirs.items()
    }
    assert expected == profile.GI


def test_links_and_events_count_in_nvidias_numbers() -> None:
    levels = ("INTERNAL", "SINGLE", "MULTIPLE", "HOSTBRIDGE", "NODE", "SYSTEM")
    assert list(links.LEVELS) == [getattr(pynvml, f"NVML_TOPOLOGY_{level}") for level in levels]
    assert events.WANTED & pynvml.nvmlEventTypeSingleBitEccError == 0  # corrected: nothing is wrong


def test_a_function_that_an_old_library_lacks_is_an_error_with_its_name(tmp_path: Path) -> None:
    from tests.nvml.library import compiled_empty

    compiled_or_skip()
    old = nvml.Nvml(str(compiled_empty("libold.so")))
    with pytest.raises(NvmlError, match="nvmlInit_v2: the driver's library has no such function") as caught:
        old.init()
    assert caught.value.code == nvml.FUNCTION_NOT_FOUND
    assert old.mig_mode(nvml.Handle(0)) is None  # no MIG before there was such a function


def _layout(layout: type[ctypes.Structure]) -> list[tuple[str, int, int]]:
    fields = [field[0] for field in layout._fields_]
    return [(name, getattr(layout, name).offset, getattr(layout, name).size) for name in fields]
