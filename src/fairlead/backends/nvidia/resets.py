"""Signs of a reset: what a reset of a GPU changes, as far as the driver and the kernel show it.

Blocking: runs on the owner thread. Read only while a fault waits for a reset. Values are compared, never understood:
docs/decisions/0014-evidence-of-a-reset.md.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fairlead.backends.nvidia.driver import Driver
from fairlead.backends.nvidia.errors import NvmlError
from fairlead.backends.nvidia.nvml import GPU_IS_LOST, NOT_FOUND, RESET_REQUIRED
from fairlead.backends.nvidia.probes import ACTIONS
from fairlead.backends.nvidia.snapshot import Gpu
from fairlead.backends.nvidia.spec import Evidence
from fairlead.model.health import Sign

_GONE = frozenset({GPU_IS_LOST, NOT_FOUND, RESET_REQUIRED})
Signs = dict[str, Sign]


def read_signs(driver: Driver, root: str, gpus: Sequence[Gpu]) -> dict[str, Signs]:
    """By the GPU's UUID. What cannot be read is left out. BackendError where there is no session."""
    module = _identity(root, "sys/module/nvidia")
    return {gpu.uuid: _read(driver, root, gpu, module) for gpu in gpus}


def _read(driver: Driver, root: str, gpu: Gpu, module: str) -> Signs:
    pci = _identity(root, f"sys/bus/pci/devices/{gpu.bus_id}", f"sys/bus/pci/drivers/nvidia/{gpu.bus_id}")
    signs: Signs = {}
    if module:
        signs[Evidence.DRIVER] = Sign(module)
    if pci:
        signs[Evidence.PCI] = Sign(pci)
    try:
        driver.ask(gpu.uuid)
    except NvmlError as error:
        if error.code in _GONE:
            signs[Evidence.ANSWER] = Sign(asks=True)
        return signs
    signs[Evidence.ANSWER] = Sign()
    if (rows := driver.rows(gpu.uuid)) is not None:
        signs[Evidence.ROWS] = Sign(asks=any(rows))
    if (action := driver.action(gpu.uuid)) is not None:
        signs[Evidence.ACTION] = Sign(asks=action in ACTIONS)
    return signs


def _identity(root: str, *paths: str) -> str:
    """Which objects of the kernel these are; empty if one is not there. One that is made anew has another number.

    Times are of no use: the kernel makes them up when it first shows a file, and again after it forgot it.
    """
    try:
        return " ".join(str(os.lstat(Path(root) / path).st_ino) for path in paths)
    except OSError:
        return ""
