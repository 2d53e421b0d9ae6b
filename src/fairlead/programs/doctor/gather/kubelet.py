"""Reads what there is of the kubelet on this node: its sockets, its configuration, its checkpoint. Blocking."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

from fairlead.fronts.checkpoint import NAME, is_written, load_checkpoint
from fairlead.kit import documents
from fairlead.kit.hostroot import HostRoot
from fairlead.programs.doctor.facts import (
    DiskCheckpoint,
    KubeletConfig,
    Missing,
    PluginDirectory,
    SocketFile,
    SocketState,
)
from fairlead.programs.doctor.gather.limits import SOCKETS_MAX
from fairlead.programs.doctor.gather.processes import Processes, option

CONNECT_S = 1.0
CONFIGS = ("/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet/kubelet-config.json")


def read_socket(path: str) -> SocketFile:
    """Whether a process takes a connection. Nothing is sent on it."""
    directory, _, name = path.rpartition("/")
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):  # noqa: PTH116 - a Path for it is waste
            return SocketFile(path, SocketState.NO_SOCKET)
        # By the directory's descriptor: an address holds 107 bytes, and a path below a root may be longer.
        fd = os.open(directory, os.O_PATH | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(CONNECT_S)
                probe.connect(f"/proc/self/fd/{fd}/{name}")
        finally:
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError):
        return SocketFile(path, SocketState.ABSENT)
    except ConnectionRefusedError as error:
        return SocketFile(path, SocketState.REFUSED, error.strerror or "")
    except PermissionError as error:
        return SocketFile(path, SocketState.DENIED, error.strerror or "")
    except OSError as error:  # a full queue, or no answer in time
        return SocketFile(path, SocketState.SILENT, error.strerror or str(error))
    return SocketFile(path, SocketState.ANSWERS)


def read_plugins(path: str, kubelet_socket: str = "") -> PluginDirectory:
    kubelet = read_socket(kubelet_socket or f"{path}/kubelet.sock")
    try:
        with os.scandir(path) as entries:
            sockets = [entry.path for entry in entries if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)]
    except PermissionError as error:
        denied = SocketFile(kubelet.path, SocketState.DENIED, error.strerror or "")
        return PluginDirectory(path, there=True, kubelet=denied)
    except OSError:
        return PluginDirectory(path, there=False, kubelet=kubelet)
    others = [each for each in sorted(sockets) if each != kubelet.path]
    return PluginDirectory(path, there=True, kubelet=kubelet, others=tuple(map(read_socket, others[:SOCKETS_MAX])))


def read_disk_checkpoint(directory: str) -> DiskCheckpoint | Missing:
    path, there = f"{directory}/{NAME}", is_written(Path(directory))
    if not Path(directory).is_dir():
        return Missing(f"{directory} is not there")
    if not there:  # no plugin has registered since the kubelet was installed
        return DiskCheckpoint(path, there=False)
    try:
        return DiskCheckpoint(path, content=load_checkpoint(Path(directory)))
    except PermissionError as error:
        return Missing(f"{path}: {error.strerror}")
    except OSError as error:
        return DiskCheckpoint(path, problem=error.strerror or str(error))
    except ValueError as error:
        return DiskCheckpoint(path, problem=f"it is not what a kubelet writes: {error}")


def read_config(root: HostRoot, found: Processes) -> KubeletConfig | Missing:
    """From the kubelet's file; flags win over it. What neither says is the kubelet's default."""
    named = "" if isinstance(found.kubelet, Missing) else found.kubelet.config
    places = (named,) if named else CONFIGS
    path = next((real for place in places if (real := root.real(place)) is not None), None)
    said: Any = {}
    if path is not None:
        said = documents.read(root.outside(path))
    elif isinstance(found.kubelet, Missing):
        return Missing(f"{found.kubelet.why}, and there is none of {', '.join(map(root.outside, places))}")
    elif named:
        return Missing(f"{root.outside(named)} is not there: mount it, or run it on the host")
    if not isinstance(said, dict):
        return Missing(f"{root.outside(path or '')} is no configuration of a kubelet")
    default = KubeletConfig()
    policy = option(found.arguments, "topology-manager-policy") or said.get("topologyManagerPolicy")
    driver = option(found.arguments, "cgroup-driver") or said.get("cgroupDriver")
    return KubeletConfig(str(policy or default.topology_policy)[:64], str(driver or default.cgroup_driver)[:64])
