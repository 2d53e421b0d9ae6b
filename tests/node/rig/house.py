"""The node's own mount namespace: its /var/lib, /run and /var/log, and kernel settings that only it sees.

A kubelet wipes every socket in /var/lib/kubelet/device-plugins when it starts, and takes any plugin that calls there.
In a house of its own it meets nobody else's plugins, and nobody else meets it. What it mounts or writes to places that
its code fixes is gone when the last process inside has ended.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.node.rig import process
from tests.node.rig.places import LIB, RUN, STATE
from tests.node.rig.steps import NodeFailedError, until

KEEPER = "keeper"
READY = RUN / "house-is-ready"
ID = STATE / "namespace"  # which namespace it is, for the day when its keeper has died
END_S = 20.0

# A directory that the node has a copy of, and the entries that it does not share with the machine.
OWN = {
    Path("/var/lib"): (LIB, ("kubelet", "cni")),
    Path("/run"): (STATE / "system", ("containerd", "netns", "nri")),
    Path("/var/log"): (STATE / "log", ("containers", "pods")),
}
# The kubelet and the network plugins set these to what they like; here they write to files.
SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
    "net/ipv4/ip_forward": "1",
}


def open_house() -> None:
    script = "\n".join(["set -e", *_mounts(), f"touch {READY}", "exec sleep infinity"])
    # Slave: what the machine unmounts goes away here too; what the node mounts stays here.
    command = [_tool("unshare"), "--mount", "--propagation", "slave", "/bin/sh", "-c", script]
    process.start(KEEPER, command)
    process.wait(READY.exists, "the node's mount namespace is there", KEEPER)
    ID.write_text(str(_namespace(process.running(KEEPER) or 0)))


def inside(*words: str | Path) -> list[str]:
    """A command that runs in the node's namespace. It is the same process: nsenter becomes it."""
    pid = process.running(KEEPER)
    if pid is None:
        raise NodeFailedError("the node's mount namespace has no keeper; is the node up?")
    return [_tool("nsenter"), f"--mount=/proc/{pid}/ns/mnt", "--", *map(str, words)]


def inhabitants() -> list[int]:
    """Every process in the namespace. All of them are ours: there is no other way in."""
    try:
        house = int(ID.read_text())
    except (OSError, ValueError):
        return []
    return [pid for pid in _pids() if _namespace(pid) == house]


def clear() -> None:
    """Ends whoever is still inside: shims, a daemon whose test was killed, and the keeper."""
    for pid in inhabitants():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with suppress(NodeFailedError):  # the sweep tells what is left
        until(lambda: not inhabitants(), "the namespace is empty", END_S)
    # A process leaves its namespaces a little before it is gone; the keeper is waited for by its pid.
    process.end(KEEPER, signal.SIGKILL)


def _mounts() -> Iterator[str]:
    for name, value in SETTINGS.items():
        real, ours = Path("/proc/sys") / name, STATE / "settings" / name
        if real.exists():
            ours.parent.mkdir(parents=True, exist_ok=True)
            ours.write_text(f"{value}\n")
            yield f"mount --bind {ours} {real}"
    for real, (ours, own) in OWN.items():
        ours.mkdir(parents=True, exist_ok=True)
        for name in own:
            (ours / name).mkdir(exist_ok=True)
        yield from (line for entry in sorted(real.iterdir()) if entry.name not in own for line in _share(entry, ours))
        yield f"mount --rbind {ours} {real}"


def _share(entry: Path, ours: Path) -> Iterator[str]:
    """The same entry in our copy of its directory."""
    copy = ours / entry.name
    if entry.is_symlink():
        copy.symlink_to(entry.readlink())
    elif entry.is_dir():
        copy.mkdir()
        # A recursive bind of what holds our copies would bind them into themselves.
        yield f"mount {'--bind' if STATE.is_relative_to(entry) else '--rbind'} '{entry}' '{copy}'"
    elif entry.exists():
        copy.touch()
        yield f"mount --bind '{entry}' '{copy}'"


def _namespace(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}/ns/mnt").stat().st_ino
    except OSError:
        return None


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _tool(name: str) -> str:
    return shutil.which(name) or name
