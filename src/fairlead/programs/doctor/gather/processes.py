"""One walk over the processes of the host: who has a device open, inotify instances, the kubelet and its command line.

Blocking, and bounded in processes, open files and time. Only links and names are read, never what a process holds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from msgspec import Struct

from fairlead.kit.hostroot import HostRoot
from fairlead.programs.doctor.facts import DeviceUser, Inotify, KubeletProcess, Missing
from fairlead.programs.doctor.gather.limits import FDS_MAX, LINKS_MAX, PROCESSES_MAX

KUBELETS = frozenset({"kubelet", "k3s-server", "k3s-agent", "kubelite"})
KERNEL_THREAD = "kthreadd"  # process 2 of the host, and of no container
# Programs that belong to the driver, or that ask it how it is.
KNOWN = frozenset({"nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "nvidia-smi", "nvidia-cuda-mps", "fairlead"})
DEVICE = re.compile(r"/dev/(?:nvidia[0-9]{1,3}|dri/renderD[0-9]{1,4}|kfd)")
POD = "kubepods"
INOTIFY = "anon_inode:inotify"
LIMIT = "/proc/sys/fs/inotify/max_user_instances"
USERS_MAX = 256
HIDDEN = "the processes of the host are not visible here: run it on the host, or in a pod with hostPID: true"


class Processes(Struct, frozen=True):
    names: frozenset[str] | Missing
    kubelet: KubeletProcess | Missing
    users: tuple[DeviceUser, ...] | Missing
    inotify: Inotify | Missing
    arguments: tuple[str, ...] = ()  # of the kubelet


def read_processes(root: HostRoot, extra: Callable[[str], bool] = lambda _path: False) -> Processes:
    """`extra`: device nodes that count beside those of GPUs."""
    if root.read("/proc/2/comm") != KERNEL_THREAD:
        hidden = Missing(HIDDEN)
        return Processes(hidden, hidden, hidden, hidden)
    pids = sorted(int(name) for name in root.names_at("/proc") if name.isdecimal() and len(name) <= 10)
    names: set[str] = set()
    users: list[DeviceUser] = []
    kubelet: KubeletProcess | None = None
    arguments: tuple[str, ...] = ()
    used, left = 0, LINKS_MAX
    denied = ""
    for pid in pids[:PROCESSES_MAX]:
        base = f"/proc/{pid}"
        name = root.read_at(f"{base}/comm", 256) or ""
        names.add(name)
        if name in KUBELETS and kubelet is None:
            arguments = _arguments(root, base)
            kubelet = _kubelet(root, pid, name, arguments)
        try:
            links, left = _links(root.outside(f"{base}/fd"), left)
        except PermissionError:
            denied = f"{base}/fd may be read by root only"
            continue
        if INOTIFY in links and (found := root.stat(base)) is not None and found.st_uid == 0:
            used += links.count(INOTIFY)
        opened = sorted({link for link in links if DEVICE.fullmatch(link) or extra(link)})
        if opened and name not in KNOWN and POD not in (root.read_at(f"{base}/cgroup") or ""):
            users += [DeviceUser(pid, name, path) for path in opened]
    limit = root.read(LIMIT) or ""
    whole = not denied and left > 0 and len(pids) <= PROCESSES_MAX
    part = Missing(denied or "there are more processes or open files than are looked at")
    return Processes(
        frozenset(names),
        kubelet or Missing("no kubelet runs here"),
        tuple(users[:USERS_MAX]) if whole or users else part,
        (Inotify(int(limit), used) if limit.isdecimal() else Missing(f"{LIMIT} is no number")) if whole else part,
        arguments,
    )


def _links(directory: str, left: int) -> tuple[list[str], int]:
    """Where open files lead to. A process that ends meanwhile has none."""
    links: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if len(links) >= FDS_MAX or left <= 0:
                    break
                left -= 1
                try:
                    links.append(os.readlink(entry.path))  # noqa: PTH115 - text
                except OSError:
                    continue
    except PermissionError:
        raise
    except OSError:
        pass
    return links, left


def _arguments(root: HostRoot, base: str) -> tuple[str, ...]:
    return tuple((root.read_at(f"{base}/cmdline") or "").strip("\0").split("\0"))


def _kubelet(root: HostRoot, pid: int, name: str, arguments: tuple[str, ...]) -> KubeletProcess:
    return KubeletProcess(
        pid,
        root_dir=option(arguments, "root-dir") or "/var/lib/kubelet",
        config=option(arguments, "config") if name == "kubelet" else "",  # of k3s it is its own
        label=(root.read_at(f"/proc/{pid}/attr/current", 4096) or "").rstrip("\0"),
    )


def option(arguments: tuple[str, ...], name: str) -> str:
    """The value of a flag: --name=value, or --name value."""
    for number, argument in enumerate(arguments):
        if argument.startswith(f"--{name}="):
            return argument.partition("=")[2].rstrip("/") or "/"
        if argument == f"--{name}" and number + 1 < len(arguments):
            return arguments[number + 1].rstrip("/") or "/"
    return ""
