"""Puts itself into the node's cgroups, then becomes the node's first process, in new namespaces.

A program of its own, because a process must be in its cgroup before it takes it for the root.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from tests.e2e_node.places import Place

PR_SET_PDEATHSIG = 1
# --kill-child: if this process is killed, the node is; and it is killed when the run is, with nobody there to do it.
NAMESPACES = ("--mount", "--mount-proc", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc", "--cgroup")


def main(name: str, run: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != run:
        sys.exit("the run has ended already")
    for group in Place(name).groups():
        (group / "cgroup.procs").write_text(str(os.getpid()))
    os.execvp("unshare", ["unshare", *NAMESPACES, sys.executable, "-m", "tests.e2e_node.inside", name])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
