"""Files of a host below a directory, as the doctor reads them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from fairlead.kit.hostroot import HostRoot

PCI = "sys/bus/pci/devices"


class Tree:
    def __init__(self, base: Path) -> None:
        self.base = base
        base.mkdir(exist_ok=True)

    @property
    def root(self) -> HostRoot:
        return HostRoot(str(self.base))

    def write(self, path: str, content: str | bytes = "") -> Path:
        file = self.base / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def link(self, path: str, target: str) -> None:
        file = self.base / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    def gpu(self, address: str, vendor: str = "0x10de", kind: str = "0x030200", driver: str = "nvidia") -> None:
        base = f"{PCI}/{address}"
        self.write(f"{base}/vendor", f"{vendor}\n")
        self.write(f"{base}/class", f"{kind}\n")
        self.write(f"{base}/numa_node", "-1\n")
        self.write(f"{base}/config", b"\xde\x10\x30\x23" + b"\0" * 60)
        if driver:
            (self.base / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
            self.link(f"{base}/driver", f"../../drivers/{driver}")

    def process(self, pid: int, name: str, *links: str, cgroup: str = "0::/system.slice", cmdline: str = "") -> None:
        base = f"proc/{pid}"
        self.write(f"{base}/comm", f"{name}\n")
        self.write(f"{base}/cgroup", cgroup)
        self.write(f"{base}/cmdline", cmdline)
        (self.base / base / "fd").mkdir()
        for number, target in enumerate(links):
            self.link(f"{base}/fd/{number}", target)

    def host_processes(self) -> None:
        self.process(2, "kthreadd")
        self.write("proc/sys/fs/inotify/max_user_instances", "128\n")


def listen(path: Path) -> socket.socket:
    """A socket with a process behind it. Its address is given relative to a descriptor: a path may be too long."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = socket.socket(socket.AF_UNIX)
    fd = os.open(path.parent, os.O_PATH)
    try:
        made.bind(f"/proc/self/fd/{fd}/{path.name}")
    finally:
        os.close(fd)
    made.listen()
    return made
