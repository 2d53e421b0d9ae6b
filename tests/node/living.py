"""The containers that live on the node at this moment, and what their processes were told.

Read from the runtime's own files and from /proc: neither the kubelet nor the API server is asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.node.rig.places import RUN

TASKS = RUN / "containerd/io.containerd.runtime.v2.task/k8s.io"


@dataclass(frozen=True, slots=True)
class Living:
    pod: str
    container: str
    pid: int
    env: Mapping[str, str]


def living() -> list[Living]:
    found = []
    for bundle in TASKS.iterdir() if TASKS.exists() else ():
        with suppress(OSError, ValueError):  # it has ended, or has not begun
            pid = int((bundle / "init.pid").read_text())
            pod, container = _names(bundle)
            if container:
                found.append(Living(pod, container, pid, _env(pid)))
    return found


@cache
def _names(bundle: Path) -> tuple[str, str]:
    """Pod and container. A sandbox is no container."""
    told = json.loads((bundle / "config.json").read_text())["annotations"]
    return told["io.kubernetes.cri.sandbox-name"], told.get("io.kubernetes.cri.container-name", "")


def _env(pid: int) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    return {key: value for key, _, value in pairs if key}
