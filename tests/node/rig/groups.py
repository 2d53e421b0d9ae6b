"""The node's cgroup, in every hierarchy of this machine: what it runs is below, and so it can be found and ended."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tests.node.rig.places import NAME

CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = CGROUPS / "cgroup.controllers"  # only cgroup v2 has it


def make() -> None:
    if CONTROLLERS.exists():
        for name in CONTROLLERS.read_text().split():
            with suppress(OSError):  # the kubelet names those that it misses
                (CGROUPS / "cgroup.subtree_control").write_text(f"+{name}")
        (CGROUPS / NAME).mkdir(exist_ok=True)
        return
    for hierarchy in _hierarchies():
        group = hierarchy / NAME
        group.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group, and then nothing may run there
            if (group / name).exists():
                (group / name).write_text((hierarchy / name).read_text())


def found() -> list[Path]:
    """All that there are, the deepest first, so that they can be removed in this order."""
    tops = [top for top in (CGROUPS / NAME, *(hierarchy / NAME for hierarchy in _hierarchies())) if top.is_dir()]
    return [Path(path) for top in tops for path, _, _ in os.walk(top, topdown=False)]


def members() -> list[int]:
    pids: set[int] = set()
    for group in found():
        with suppress(OSError):
            pids.update(int(pid) for pid in (group / "cgroup.procs").read_text().split() if pid != "0")
    return sorted(pids)


def _hierarchies() -> list[Path]:
    return [entry for entry in CGROUPS.iterdir() if not entry.is_symlink() and entry.is_mount()]
