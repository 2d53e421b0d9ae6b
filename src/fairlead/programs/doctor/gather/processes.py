"""One walk over the processes of the host: who has a device open, inotify instances, the kubelet and its command line.

`kit.processes` walks, within bounds. This says what is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from fairlead.kit.hostroot import HostRoot
from fairlead.kit.processes import Walk
from fairlead.policy.audit import DRIVER_PROGRAMS as KNOWN
from fairlead.programs.doctor.facts import DeviceUser, Inotify, KubeletProcess, Missing

KUBELETS = frozenset({"kubelet", "k3s-server", "k3s-agent", "kubelite"})
DEVICE = re.compile(r"/dev/(?:nvidia[0-9]{1,3}|dri/renderD[0-9]{1,4}|kfd)")
POD = "kubepods"
INOTIFY = "anon_inode:inotify"
LIMIT = "/proc/sys/fs/inotify/max_user_instances"
USERS_MAX = 256


class Processes(Struct, frozen=True):
    names: frozenset[str] | Missing
    kubelet: KubeletProcess | Missing
    users: tuple[DeviceUser, ...] | Missing
    inotify: Inotify | Missing
    arguments: tuple[str, ...] = ()  # of the kubelet


def read_processes(root: HostRoot, extra: Callable[[str], bool] = lambda _path: False) -> Processes:
    """`extra`: device nodes that count beside those of GPUs."""
    walk = Walk(root)
    if not walk.visible:
        hidden = Missing(walk.lacks)
        return Processes(hidden, hidden, hidden, hidden)
    names: set[str] = set()
    users: list[DeviceUser] = []
    kubelet: KubeletProcess | None = None
    arguments: tuple[str, ...] = ()
    used = 0
    for process in walk:
        base, name = f"/proc/{process.pid}", process.name
        names.add(name)
        if name in KUBELETS and kubelet is None:
            arguments = _arguments(root, base)
            kubelet = _kubelet(root, process.pid, name, arguments)
        if INOTIFY in process.links and (found := root.stat(base)) is not None and found.st_uid == 0:
            used += process.links.count(INOTIFY)
        opened = sorted({link for link in process.links if DEVICE.fullmatch(link) or extra(link)})
        if opened and name not in KNOWN and POD not in walk.cgroup(process):
            users += [DeviceUser(process.pid, name, path) for path in opened]
    limit = root.read(LIMIT) or ""
    part = Missing(walk.lacks)
    return Processes(
        frozenset(names),
        kubelet or Missing("no kubelet runs here"),
        tuple(users[:USERS_MAX]) if users or not walk.lacks else part,
        (Inotify(int(limit), used) if limit.isdecimal() else Missing(f"{LIMIT} is no number"))
        if not walk.lacks
        else part,
        arguments,
    )


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
