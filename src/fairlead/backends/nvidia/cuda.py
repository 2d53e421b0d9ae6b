"""CUDA's own library, for systems on a chip where NVML says too little: names, memory, versions. Blocking.

Beside `nvml.py` the only module that calls into a driver. Nothing but the labels needs it.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t

from fairlead.backends.nvidia.snapshot import Gpu, Platform, Snapshot
from fairlead.model.errors import BackendError

NAME = "libcuda.so.1"
_NAME_BYTES = 256
_MAJOR, _MINOR = 75, 76  # compute capability, among the attributes of a device


def snapshot(library: str = NAME) -> Snapshot:
    """BackendError where there is no CUDA, or where it does not start."""
    try:
        cuda = ctypes.CDLL(library)
    except OSError as error:
        raise BackendError(
            f"{library} cannot be loaded: {error}. On a system on a chip the labels come from it"
        ) from None

    def call(name: str, *args: object) -> None:
        try:
            code = getattr(cuda, name)(*args)
        except AttributeError:
            raise BackendError(f"{library} has no {name}: it is not NVIDIA's") from None
        if code:
            raise BackendError(f"{name} failed with CUDA error {code}. Is the driver loaded?")

    version, count = c_int(), c_int()
    call("cuInit", c_int(0))
    call("cuDriverGetVersion", byref(version))
    call("cuDeviceGetCount", byref(count))
    gpus = []
    for index in range(count.value):
        device, major, minor, size = c_int(), c_int(), c_int(), c_size_t()
        name = ctypes.create_string_buffer(_NAME_BYTES)
        call("cuDeviceGet", byref(device), c_int(index))
        call("cuDeviceGetName", name, c_int(_NAME_BYTES), device)
        call("cuDeviceTotalMem_v2", byref(size), device)
        call("cuDeviceGetAttribute", byref(major), c_int(_MAJOR), device)
        call("cuDeviceGetAttribute", byref(minor), c_int(_MINOR), device)
        text = name.value.decode(errors="replace")
        gpus.append(Gpu(f"cuda{index}", index, -1, "", text, size.value, f"{major.value}.{minor.value}"))
    return Snapshot(Platform.TEGRA, tuple(gpus), driver_version="unknown", cuda_version=version.value)
