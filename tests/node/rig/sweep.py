"""Removes what a node leaves behind: sandboxes, whoever lives in its namespace, cgroups, files.

Only what carries the node's own name or paths is touched. `leftovers` says what is still there. Mounts and network
namespaces go with the node's mount namespace: they have no name anywhere else.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.node.rig import door, groups, house, process
from tests.node.rig.images import SPACE
from tests.node.rig.places import CONTAINERD, MARK, PIDS, PODS_RANGE, STATE
from tests.node.rig.steps import NodeFailedError, until

SANDBOX_S = 20.0
EMPTY_S = 20.0


def remove_sandboxes(ctr: Path) -> None:
    """Through containerd, which then ends containers and shims and gives addresses back."""
    import grpc  # only here: a node without sandboxes does not need it

    known = [str(ctr), "-a", str(CONTAINERD), "-n", SPACE]
    found = subprocess.run([*known, "sandboxes", "ls"], capture_output=True, text=True, check=False)
    sandboxes = [line.split()[0] for line in found.stdout.splitlines()[1:] if line.split()]
    with grpc.insecure_channel(f"unix://{CONTAINERD}") as channel:
        for name in ("StopPodSandbox", "RemovePodSandbox"):
            call = channel.unary_unary(f"/runtime.v1.RuntimeService/{name}", bytes, bytes)
            for sandbox in sandboxes:
                with suppress(grpc.RpcError):  # one that is gone already; `leftovers` judges the outcome
                    call(b"\x0a" + bytes([len(sandbox)]) + sandbox.encode(), timeout=SANDBOX_S)


def sweep() -> None:
    """What is left when every process of ours has been asked to end."""
    door.remove_address()
    house.clear()
    for pid in groups.members():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with suppress(NodeFailedError):
        until(lambda: not groups.members(), "containers end", EMPTY_S)
    with suppress(NodeFailedError):  # a group stays busy for a moment after its last process has ended
        until(_remove_groups, "cgroups are removed", EMPTY_S)
    with suppress(NodeFailedError):  # the kernel takes network namespaces apart in its own time
        until(lambda: not routes(), "routes to pods are gone", EMPTY_S)


def _remove_groups() -> bool:
    for group in groups.found():
        with suppress(OSError):
            group.rmdir()
    return not groups.found()


def forget() -> None:
    """Last of all: without the state directory nobody knows any more what was there."""
    if MARK.exists():
        shutil.rmtree(STATE, ignore_errors=True)


def leftovers() -> list[str]:
    found = [f"process {name}" for name in _names(PIDS) if process.running(name)]
    found += [f"process {pid} in the node's mount namespace" for pid in house.inhabitants()]
    found += [f"process {pid} in a container" for pid in groups.members()]
    found += [f"mount {mount}" for mount in mounts()]
    found += [f"cgroup {group}" for group in groups.found()]
    found += [f"route to {address}, so a network namespace" for address in routes()]
    found += ["the address of the API server for pods"] if door.has_address() else []
    return found


def mounts() -> list[str]:
    """None are expected: what the node mounts is in its own namespace."""
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [point for point in points if Path(point).is_relative_to(STATE)]


def routes() -> list[str]:
    """The machine has a route to each pod with an address of its own, through a pair of interfaces."""
    prefix = bytes(int(part) for part in PODS_RANGE.split(".")[:3])
    found = []
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        address = int(line.split()[1], 16).to_bytes(4, "little")
        if address.startswith(prefix):
            found.append(".".join(map(str, address)))
    return found


def _names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir()) if directory.is_dir() else []
