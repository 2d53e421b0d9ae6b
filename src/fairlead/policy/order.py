"""The order of devices: by index as people count ("2" before "10"), then by id. Knows nothing of slots."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TypeAlias

from fairlead.model.device import Device

NaturalKey: TypeAlias = tuple[tuple[int, int, str], ...]
DeviceKey: TypeAlias = tuple[bool, NaturalKey, NaturalKey, str]

_RUNS = re.compile(r"[0-9]+|[^0-9]+")


@lru_cache(maxsize=4096)  # the same devices are put in order at each change
def natural_key(text: str) -> NaturalKey:
    """Sorts runs of digits by value. A number is compared by its length, then its digits: no limit on its size."""
    runs: list[tuple[int, int, str]] = []
    for run in _RUNS.findall(text):
        if "0" <= run[0] <= "9":
            digits = run.lstrip("0")
            runs.append((0, len(digits), digits))
        else:
            runs.append((1, 0, run))
    return tuple(runs)


def device_key(device: Device) -> DeviceKey:
    """Devices without an index come last. The plain id decides between "01" and "1"."""
    return (not device.index, natural_key(device.index), natural_key(device.id), device.id)
