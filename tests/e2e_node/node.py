"""One node from the outside: lays out its directory and cgroups, starts it, waits for it, removes all of it.

Knows a node's processes by its cgroups: what is in there is the node's, whoever started it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.e2e_node import settings
from tests.e2e_node.places import CGROUPS, GROUP, MADE, POINTS, ROOT, STATE, Place, hierarchies
from tests.node.rig.steps import until

END_S = 30.0
SHIMS = ("systemctl", "systemd-run", "sudo", "journalctl")
SHIM = Path(__file__).parent / "shim.py"


class Node:
    """Runs the suite once, with a focus. Started in a session of its own: Ctrl-C is for us, who then end it."""

    def __init__(self, name: str, programs: Mapping[str, Path], images: Path, focus: str) -> None:
        self.place = Place(name)
        remove(self.place)
        self._lay_out(programs, images, focus)
        self.began_s = time.monotonic()
        with (self.place.root / "node.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e_node.enter", name, str(os.getpid())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _lay_out(self, programs: Mapping[str, Path], images: Path, focus: str) -> None:
        place = self.place
        for directory in (place.bin, place.reports):
            directory.mkdir(parents=True)
        for name, binary in programs.items():
            (place.bin / name).symlink_to(binary)
        for name in SHIMS:
            script = place.bin / name
            # -S -E: a shim needs nothing that is installed, and the suite calls it often.
            script.write_text(f"#!{sys.executable} -SE\n{SHIM.read_text()}")
            script.chmod(0o755)
        settings.write(place, programs["containerd-shim-runc-v2"])
        place.order.write_text(json.dumps({"images": str(images), "focus": focus}))
        for group in place.groups():
            group.mkdir(parents=True)
        # A new cpuset is empty, and takes no process before it has CPUs and memory.
        cpuset = CGROUPS / "cpuset"
        for group in (cpuset / GROUP, cpuset / GROUP / place.name) if cpuset.is_dir() else ():
            for name in ("cpuset.cpus", "cpuset.mems"):
                (group / name).write_text((group.parent / name).read_text())

    def ended(self) -> int | None:
        return self._process.poll()

    def end(self) -> None:
        """Kills it, if it still runs, and waits until no process of it is left."""
        kill(self.place)
        self._process.wait(END_S)

    def complaint(self) -> str:
        """What it says when it ends without having run a spec."""
        logs = [self.place.root / "node.log", self.place.reports / "suite.log"]
        texts = [log.read_text(errors="replace").strip() for log in logs if log.exists()]
        return "\n".join(text[-1500:] for text in texts if text) or "it said nothing"


def make_points() -> None:
    """The places that nodes mount something over. Written down, so that those we made can go again."""
    STATE.mkdir(parents=True, exist_ok=True)
    absent = [path for path in POINTS if not path.exists()]
    MADE.write_text("".join(f"{path}\n" for path in absent))
    for path in absent:
        path.mkdir(parents=True)


def kill(place: Place) -> None:
    def alive() -> list[int]:
        return processes(place)

    for pid in alive():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(), f"every process of node {place.name} ends", END_S)


def remove(place: Place) -> None:
    """All that a node leaves: also one of an earlier run that was cut off."""
    kill(place)
    for group in place.groups():
        for path, _, _ in os.walk(group, topdown=False):
            until(partial(_rmdir, Path(path)), f"cgroup {path} is empty", END_S)
    shutil.rmtree(place.root, ignore_errors=True)


def remove_all() -> list[str]:
    """Removes the nodes of every run, and answers what could not be removed."""
    names = {path.name for top in (STATE, *(root / GROUP for root in hierarchies())) for path in _directories(top)}
    for name in sorted(names):
        remove(Place(name))
    for point in MADE.read_text().split() if MADE.exists() else ():
        with suppress(OSError):
            Path(point).rmdir()
    for root in hierarchies():
        with suppress(OSError):
            (root / GROUP).rmdir()
    shutil.rmtree(STATE, ignore_errors=True)
    return [str(path) for path in (STATE, *(root / GROUP for root in hierarchies())) if path.exists()]


def processes(place: Place) -> list[int]:
    found: set[int] = set()
    for group in place.groups():
        for path, _, _ in os.walk(group):
            with suppress(OSError):
                found |= {int(pid) for pid in (Path(path) / "cgroup.procs").read_text().split()}
    return sorted(found)


def _rmdir(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # a process that has just ended is still counted for a moment
        return False
    return True


def _directories(top: Path) -> list[Path]:
    return [path for path in top.iterdir() if path.is_dir()] if top.is_dir() else []
