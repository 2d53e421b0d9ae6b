"""Removes what a node leaves behind: sandboxes, shims, mounts, network namespaces, cgroups, files.

Only what carries the node's own paths is touched. `leftovers` says what is still there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.node.rig import process, traces
from tests.node.rig.images import SPACE
from tests.node.rig.places import CONTAINERD, KUBELET, OURS, PIDS, PLUGINS, PODS, RUN, STATE
from tests.node.rig.steps import NodeFailedError, until

CGROUPS = Path("/sys/fs/cgroup")
RESULTS = Path("/var/lib/cni/results")  # the network library remembers here what it made
MADE = "/"  # what the marker says when the kubelet's directory was not there before; else it names what was
LINKS = Path("/var/log/containers")  # the kubelet links to what containers print
SANDBOX_S = 20.0


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
    for pid in shims():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with suppress(NodeFailedError):
        until(lambda: not shims(), "shims end", 5.0)
    for mount in reversed(mounts()):
        subprocess.run(["umount", "-l", mount], capture_output=True, check=False)
    for name in traces.namespaces():
        subprocess.run(["umount", "-l", name], capture_output=True, check=False)
        name.unlink(missing_ok=True)
    for group in cgroups():
        with suppress(OSError):
            group.rmdir()
    for result in RESULTS.glob("fairlead-node-*"):
        result.unlink(missing_ok=True)
    for link in LINKS.glob("*.log"):
        if link.is_symlink() and link.readlink().is_relative_to(PODS):
            link.unlink(missing_ok=True)
    traces.undo()
    shutil.rmtree(RUN, ignore_errors=True)


def forget() -> None:
    """Last of all: without the state directory nobody knows any more what was there before."""
    if OURS.exists():
        _empty_kubelet()
    shutil.rmtree(STATE, ignore_errors=True)


def mark_kubelet() -> None:
    """Makes the kubelet's directory ours, and writes down what was there before."""
    found = _names(PLUGINS) if KUBELET.exists() else [MADE]
    PLUGINS.mkdir(parents=True, exist_ok=True)
    OURS.write_text("\n".join(found))


def _empty_kubelet() -> None:
    """All of it if we made it. A plug-in directory that was there before stays: it may be somebody's mount point."""
    before = OURS.read_text().splitlines()
    if before == [MADE]:
        shutil.rmtree(KUBELET, ignore_errors=True)
        return
    for entry in KUBELET.iterdir():
        if entry.is_dir() and entry != PLUGINS:
            shutil.rmtree(entry, ignore_errors=True)
        elif entry != PLUGINS:
            entry.unlink(missing_ok=True)
    for entry in PLUGINS.iterdir():
        # Sockets have living owners, who remove them. Locks and checkpoints do not.
        if entry.name not in before and (entry.is_file() or entry.name == "kubelet.sock"):
            entry.unlink(missing_ok=True)


def leftovers() -> list[str]:
    pids = [f"process {name}" for name in _names(PIDS) if process.running(name)]
    found = [f"shim {pid}" for pid in shims()]
    found += [f"mount {mount}" for mount in mounts()]
    found += [f"cgroup {group}" for group in cgroups()]
    found += [f"network namespace {name}" for name in traces.namespaces()]
    found += [f"directory {path}" for path in (str(RUN), *traces.left()) if Path(path).exists()]
    return pids + found


def shims() -> list[int]:
    """Shims that our containerd has started: they are told its address."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"containerd-shim" in words[0] and any(str(RUN).encode() in word for word in words[1:]):
                    found.append(int(entry.name))
    return found


def mounts() -> list[str]:
    roots = tuple(f"{path}/" for path in ((STATE, RUN, KUBELET) if OURS.exists() else (STATE, RUN)))
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [point for point in points if f"{point}/".startswith(roots)]


def cgroups() -> list[Path]:
    """The deepest first, so that they can be removed in this order."""
    tops = [top for top in (CGROUPS / SPACE, *CGROUPS.glob(f"*/{SPACE}")) if top.is_dir()]
    return [Path(path) for top in tops for path, _, _ in os.walk(top, topdown=False)]


def _names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir()) if directory.is_dir() else []
