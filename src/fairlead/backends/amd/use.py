"""How busy whole GPUs are, as the driver shows it in the directory of each PCI function.

Blocking: runs on a thread of its own, because the driver asks the firmware of the GPU. The driver counts for a whole
GPU; of a partition it says nothing that would be true of that partition alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.backends.amd import sysfs
from fairlead.backends.amd.devices import MEMORY_MAX_BYTES
from fairlead.backends.amd.host import DRIVER
from fairlead.kit.hostroot import HostRoot
from fairlead.model.device import Device, Usage
from fairlead.model.names import DeviceId

PERCENT_MAX = 100


def read_use(root: HostRoot, devices: Sequence[Device]) -> dict[DeviceId, Usage]:
    """What cannot be read, or makes no sense, is left out."""
    found = {device.id: _use(root, device.attributes["gpu"]) for device in devices if device.parent is None}
    return {device: use for device, use in found.items() if use != Usage()}


def _use(root: HostRoot, gpu: str) -> Usage:
    real = root.real(f"{DRIVER}/{gpu}")
    if real is None:
        return Usage()
    at = root.outside(real)
    percent = _number(f"{at}/gpu_busy_percent", PERCENT_MAX)
    total = _number(f"{at}/mem_info_vram_total", MEMORY_MAX_BYTES)
    used = _number(f"{at}/mem_info_vram_used", total or MEMORY_MAX_BYTES)
    return Usage(None if percent is None else percent / PERCENT_MAX, used)


def _number(path: str, most: int) -> int | None:
    try:
        text = sysfs.text(path)
    except OSError:  # a GPU that sleeps or is being reset refuses to say it
        return None
    return number if sysfs.is_number(text) and (number := int(text)) <= most else None
