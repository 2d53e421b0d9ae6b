"""Who is measured: our daemon and the two empty plugins, and how each is started in a plugin directory.

Must not know what is measured.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bench.rows import AIO, GO, OURS

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
DEVICES = 8
# The ready-made h100x8, written out: a ready-made one is a YAML file, which real devices are not.
FLEET: dict[str, Any] = {
    "devices": [
        {
            "count": DEVICES,
            "vendor": "nvidia",
            "model": "NVIDIA H100 80GB HBM3",
            "memory": "80GiB",
            "numa": [0, 1],
            "links": "nvswitch",
        }
    ]
}
RESOURCE = "example.com/gpu"


class Launch(Protocol):
    def __call__(self, directory: Path) -> Sequence[str | Path]:
        """The command that serves in this plugin directory. What it needs beside goes to the directory's parent."""


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    resource: str
    launch: Launch
    gated: bool = False  # its command lays out a root first, see process.GATE


def ours(slots_per_device: int = 1, **more: Any) -> Contestant:
    """Our daemon on simulated devices, each shared into this many slots."""
    rule: dict[str, Any] = {"resource": RESOURCE, "env": {"VISIBLE_DEVICES": "{ids}"}}
    if slots_per_device > 1:
        rule["replicas"] = slots_per_device
    return simulated(RESOURCE, FLEET, rule, **more)


def simulated(
    resource: str, fleet: Any, rule: dict[str, Any], *, name: str = OURS, pod_resources: str = "", **more: Any
) -> Contestant:
    """Our daemon on a fleet, with one rule. `more`: other parts of its configuration."""

    def launch(directory: Path) -> Sequence[str | Path]:
        home = directory.parent
        config = {
            "backends": [{"kind": "sim", "fleet": fleet}],
            "rules": [rule],
            # Mostly without a pod-resources socket: the kubelet's part played here has no pods.
            "kubelet": {"directory": str(directory), "podResources": pod_resources},
            "status": {"socket": str(home / "s.sock")},
            **more,
        }
        # As JSON, which is YAML too: the daemon then loads no YAML, as one with real devices and such a file would not.
        file = home / "config.json"
        file.write_text(json.dumps(config))
        return [Path(sys.executable).with_name("fairlead"), "run", "--config", file]

    return Contestant(name, resource, launch)


def aio() -> Contestant:
    def launch(directory: Path) -> Sequence[str | Path]:
        # Imported, as an installed plugin is: a script's own byte code is never kept.
        begin = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from bench.emptyaio import run; run()"
        return [sys.executable, "-c", begin, "--dir", directory, "--resource", RESOURCE, "--devices", str(DEVICES)]

    return Contestant(AIO, RESOURCE, launch)


def go(binary: Path) -> Contestant:
    def launch(directory: Path) -> Sequence[str | Path]:
        return [binary, "--dir", directory, "--resource", RESOURCE, "--devices", str(DEVICES)]

    return Contestant(GO, RESOURCE, launch)
