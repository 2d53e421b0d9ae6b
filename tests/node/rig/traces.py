"""What the programs change outside of the state directory, because their code fixes the place.

Written down before they start, and put back when they have ended.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.node.rig.places import STATE

NAMES = Path("/run/netns")  # where the network namespaces of sandboxes are pinned
BEFORE = STATE / "before.json"
PLACES = (
    "/run/containerd",  # the shims' sockets
    "/opt/containerd",
    "/run/netns",
    "/var/lib/cni",
    "/var/log/containers",  # the kubelet's links to logs
    "/usr/libexec/kubernetes",
)
# The kubelet sets these to what it likes.
KERNEL = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


def remember() -> None:
    settings = {name: file.read_text() for name in KERNEL if (file := _setting(name)).exists()}
    absent = [place for place in PLACES if not Path(place).exists()]
    BEFORE.write_text(json.dumps({"absent": absent, "settings": settings, "namespaces": _names()}))


def namespaces() -> list[Path]:
    """The network namespaces that are there now and were not before."""
    before = _before()
    return [] if before is None else [NAMES / name for name in _names() if name not in before["namespaces"]]


def undo() -> None:
    before = _before()
    if before is None:
        return
    for place in before["absent"]:
        shutil.rmtree(place, ignore_errors=True)
    for name, value in before["settings"].items():
        with suppress(OSError):
            _setting(name).write_text(value)


def left() -> list[str]:
    before = _before()
    return [] if before is None else [place for place in before["absent"] if Path(place).exists()]


def _names() -> list[str]:
    return sorted(path.name for path in NAMES.glob("cni-*"))


def _before() -> dict[str, Any] | None:
    try:
        return dict(json.loads(BEFORE.read_text()))
    except OSError:
        return None


def _setting(name: str) -> Path:
    return Path("/proc/sys") / name
