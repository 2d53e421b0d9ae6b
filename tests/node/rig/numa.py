"""A machine with two NUMA nodes, as the node's kubelet sees it: it reads of them in a directory, and that can be ours.

The CPUs are the machine's own, one half on each node; memory is said to be halved too. Nothing is really far away.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.node.rig.house import inside
from tests.node.rig.places import STATE
from tests.node.rig.steps import NodeFailedError, NodeMissingError

REAL = Path("/sys/devices/system/node")
CPUS = Path("/sys/devices/system/cpu")
OURS = STATE / "numa"
NODES = 2


@contextmanager
def split() -> Iterator[None]:
    """A kubelet that starts meanwhile sees two nodes, with the first CPU on node 0 and the last on node 1."""
    if not REAL.is_dir():
        raise NodeMissingError(f"{REAL} is not there: this kernel does not know of NUMA")
    _write()
    _mount("mount", "--bind", str(OURS), str(REAL))
    try:
        yield
    finally:
        _mount("umount", str(REAL))


def cpus() -> list[int]:
    return sorted(int(path.name[3:]) for path in CPUS.glob("cpu[0-9]*"))


def _write() -> None:
    halves = len(cpus()) // NODES
    memory = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    if halves == 0 or memory is None:
        raise NodeMissingError(f"two NUMA nodes need two CPUs; there are {len(cpus())}")
    for node in range(NODES):
        place = OURS / f"node{node}"
        (place / "hugepages").mkdir(parents=True, exist_ok=True)
        (place / "meminfo").write_text(f"Node {node} MemTotal: {int(memory[1]) // NODES} kB\n")
        (place / "distance").write_text(" ".join("10" if other == node else "20" for other in range(NODES)) + "\n")
        for cpu in cpus()[halves * node : halves * (node + 1)]:
            (place / f"cpu{cpu}").unlink(missing_ok=True)
            (place / f"cpu{cpu}").symlink_to(CPUS / f"cpu{cpu}")


def _mount(*words: str) -> None:
    done = subprocess.run(inside("/usr/bin/env", *words), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NodeFailedError(f"{' '.join(words)}: {done.stderr.strip()}")
