"""Which program is asked: NVIDIA's own, or ours in its dialect."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import fairlead
from tests.toolchain import build_or_skip


@dataclass(frozen=True, slots=True)
class Program:
    words: tuple[str, ...]  # what stands for the name of NVIDIA's program
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)  # what its place must hold, by the path inside
    states: dict[str, str] = field(default_factory=dict)  # a text in its log, and the state that it tells


def nvidia_plugin() -> Program:
    return _nvidia("nvidia-device-plugin")


def nvidia_discovery() -> Program:
    return _nvidia("gpu-feature-discovery")


def our_plugin(*more: str) -> Program:
    """`fairlead nvidia` from this work tree."""
    source = Path(fairlead.__file__).parents[1]
    env = {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    # It looks again: for devices, for a driver, for MPS. And asks again: the kubelet.
    states = {" nothing-offered ": "waiting", " backoff ": "retrying"}
    return Program((sys.executable, "-m", "fairlead", "nvidia", *more), env, states=states)


def _nvidia(name: str) -> Program:
    states = {"No devices found. Waiting indefinitely.": "idle", "Failed to start one or more plugins.": "retrying"}
    return Program((f"/usr/bin/{name}",), files={f"/usr/bin/{name}": build_or_skip(name)}, states=states)
