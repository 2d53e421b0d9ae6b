"""Recorded answers of other systems' own programs, to be replayed against ours.

`nvidia/` is what NVIDIA's k8s-device-plugin v0.20.0 answered, `gfd/` what its gpu-feature-discovery did, both on
simulated drivers. `mini/`, `gpushare/` and `volcano/` are plugins that share memory (`sharing.py`).

Owns how the recordings are kept and read. Must not know what they are compared with.
"""

from __future__ import annotations

from tests.vectors.read import drivers, gfd, nvidia
from tests.vectors.types import Allocation, Frames, LabelVector, Preference, Registration, Resource, Result, Vector

__all__ = [
    "Allocation",
    "Frames",
    "LabelVector",
    "Preference",
    "Registration",
    "Resource",
    "Result",
    "Vector",
    "drivers",
    "gfd",
    "nvidia",
]
