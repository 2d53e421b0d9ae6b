"""One walk over the processes of the host: names, open files, cgroups. Blocking, and bounded in all three.

Only links and names are read, never what a process holds. Knows nothing of devices.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct

from fairlead.kit.hostroot import HostRoot

PROCESSES_MAX = 16_384
FDS_MAX = 4_096  # of one process
LINKS_MAX = 400_000  # of all
KERNEL_THREAD = "kthreadd"  # process 2 of the host, and of no container
HIDDEN = "the processes of the host are not visible here: run it on the host, or in a pod with hostPID: true"


class Process(Struct, frozen=True):
    pid: int
    name: str
    links: tuple[str, ...] = ()  # where its open files lead to


class Walk:
    """`lacks`: why not all was seen; empty: it was. Final when the walk is over."""

    def __init__(self, root: HostRoot) -> None:
        self._root = root
        self.visible = root.read("/proc/2/comm") == KERNEL_THREAD
        self.lacks = "" if self.visible else HIDDEN

    def __iter__(self) -> Iterator[Process]:
        if not self.visible:
            return
        pids = sorted(int(name) for name in self._root.names_at("/proc") if name.isdecimal() and len(name) <= 10)
        left, more = LINKS_MAX, "there are more processes or open files than are looked at"
        for pid in pids[:PROCESSES_MAX]:
            base = f"/proc/{pid}"
            name = self._root.read_at(f"{base}/comm", 256) or ""
            try:
                links = _links(self._root.outside(f"{base}/fd"), min(left, FDS_MAX))
            except PermissionError:
                self.lacks, links = f"{base}/fd may be read by root only", []
            left -= len(links)
            yield Process(pid, name, tuple(links))
        if not self.lacks and (left <= 0 or len(pids) > PROCESSES_MAX):
            self.lacks = more

    def cgroup(self, process: Process) -> str:
        return self._root.read_at(f"/proc/{process.pid}/cgroup") or ""


def _links(directory: str, most: int) -> list[str]:
    """A process that ends meanwhile has none."""
    links: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if len(links) >= most:
                    break
                try:
                    links.append(os.readlink(entry.path))  # noqa: PTH115 - text
                except OSError:
                    continue
    except PermissionError:
        raise
    except OSError:
        pass
    return links
