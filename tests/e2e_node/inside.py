"""The first process of a node, in namespaces of its own: makes the place, starts containerd, runs the suite.

Everything that is started here ends with this process, and every mount, address and name with it. It leaves only what
lies in the node's directory, and its cgroups; `node` removes both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.e2e_node import settings
from tests.e2e_node.places import CDI, CGROUPS, CONTAINERD, HIDDEN, NODE, POINTS, UNITS, Place
from tests.node.rig.images import SPACE

# The kubelet sets these for the whole machine. It may believe that it did.
KERNEL = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
PATIENCE_S = 60.0


def main(name: str) -> int:
    place = Place(name)
    order = json.loads(place.order.read_text())
    groups = _own_groups()
    _mounts(place)
    _cgroups(groups)
    _network()
    containerd = _spawn([f"{place.bin}/containerd", "--config", f"{place.config}/containerd.toml"], place, "containerd")
    _await_containerd(containerd)
    _run(f"{place.bin}/ctr", "-a", str(CONTAINERD), "-n", SPACE, "images", "import", order["images"])
    suite = _spawn([f"{place.bin}/suite", *settings.arguments(place, order["focus"])], place, "suite")
    return _wait_for(suite)


def _mounts(place: Place) -> None:
    _run("mount", "--make-rprivate", "/")
    for path in POINTS:
        own = place.root / "private" / path.name
        own.mkdir(parents=True)
        _run("mount", "--bind", str(own), str(path))
    for path in HIDDEN:
        _run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(path))
    for file, text in settings.names().items():
        own = place.root / "private" / Path(file).name
        own.write_text(text)
        _run("mount", "--bind", str(own), file)
    for setting in KERNEL:
        real, own = Path("/proc/sys") / setting, place.root / "private" / "kernel" / setting
        if real.exists():
            own.parent.mkdir(parents=True, exist_ok=True)
            own.write_text(real.read_text())
            _run("mount", "--bind", str(own), str(real))
    for directory in (CDI, UNITS, CONTAINERD.parent, place.work, place.reports):
        directory.mkdir(parents=True, exist_ok=True)


def _own_groups() -> list[tuple[str, str, str]]:
    """The cgroup mounts of the machine: place, type, options."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split()[:3]
        if kind in {"cgroup", "cgroup2"} and Path(left.split()[4]).is_relative_to(CGROUPS):
            controllers = [word for word in options.split(",") if word not in {"rw", "ro", "xattr"}]
            found.append((left.split()[4], kind, ",".join(controllers)))
    return found


def _cgroups(groups: list[tuple[str, str, str]]) -> None:
    """Mounts them anew: in a cgroup namespace that shows the node's own cgroup as the root."""
    if [place for place, _, _ in groups] == [str(CGROUPS)]:
        _run("mount", "-t", "cgroup2", "cgroup2", str(CGROUPS))
        # In the one hierarchy of version 2, a cgroup with processes cannot hand its controllers on.
        leaf = CGROUPS / "init"
        leaf.mkdir()
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        known = (CGROUPS / "cgroup.controllers").read_text().split()
        (CGROUPS / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in known))
        return
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(CGROUPS))
    for place, kind, options in groups:
        Path(place).mkdir(parents=True)
        words = ["-o", f"none,{options}" if options.startswith("name=") else options] if kind == "cgroup" else []
        _run("mount", "-t", kind, *words, kind, place)


def _network() -> None:
    """A cable with nothing at its other end: enough for an address and a default route."""
    _run("hostname", NODE)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "nowhere")
    for name in ("eth0", "nowhere"):
        _run("ip", "link", "set", name, "up")
    _run("ip", "address", "add", settings.ADDRESS, "dev", "eth0")
    _run("ip", "route", "add", "default", "via", settings.GATEWAY)


def _await_containerd(pid: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while not CONTAINERD.exists():
        if os.waitpid(pid, os.WNOHANG)[0] or time.monotonic() > end:
            raise RuntimeError("containerd does not start; see containerd.log")
        time.sleep(0.05)


def _spawn(command: list[str], place: Place, name: str) -> int:
    log = os.open(place.reports / f"{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    ends = [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
    os.chdir(place.work)
    env = {**os.environ, "PATH": f"{place.bin}:{os.environ['PATH']}", "TMPDIR": "/tmp"}
    return os.posix_spawn(command[0], command, env, file_actions=ends, setsid=True)


def _wait_for(pid: int) -> int:
    """Until it ends. Whatever else has lost its parent is taken in, as is the duty of a first process."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except (RuntimeError, OSError, ValueError) as error:
        sys.exit(f"node {sys.argv[1]}: {error}")
