"""What the machine must have. Installs the three Debian packages; everything else it only names."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from tests import toolchain
from tests.node.rig.places import MARK, STATE
from tests.node.rig.steps import NodeMissingError, step

PACKAGES = {
    "runc": Path("/usr/sbin/runc"),
    "containernetworking-plugins": Path("/usr/lib/cni/ptp"),
    "busybox-static": Path("/bin/busybox"),
}
INSTALLING = Path("/run/lock/fairlead-node-install")  # stays: removing it would let two hold it
TOOLS = ("ip", "openssl", "mount", "unshare", "nsenter")
HIERARCHIES = ("cpu", "cpuacct", "cpuset", "memory")  # what a kubelet asks of cgroup v1


def check_root() -> None:
    if os.geteuid() != 0:
        raise NodeMissingError("a node needs root")


def check() -> None:
    """Says why this machine cannot run a node, before anything is built."""
    check_root()
    if STATE.exists() and not MARK.exists() and any(STATE.iterdir()):
        raise NodeMissingError(f"{STATE} holds something else; name an empty directory in NODE_STATE")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise NodeMissingError(f"these commands are missing: {', '.join(missing)}")
    groups = Path("/sys/fs/cgroup")
    if not (groups / "cgroup.controllers").exists() and not all((groups / name).is_dir() for name in HIERARCHIES):
        raise NodeMissingError(f"a kubelet needs the cgroup hierarchies {', '.join(HIERARCHIES)} under {groups}")
    if _absent() and shutil.which("apt-get") is None:
        raise NodeMissingError(f"install {', '.join(_absent())}: there is no apt-get to do it")
    try:
        toolchain.find_go()
    except toolchain.ToolchainMissingError as missing_go:
        raise NodeMissingError(str(missing_go)) from None


def install() -> None:
    """One node at a time: another one may be starting beside this one."""
    if not _absent():
        return
    with INSTALLING.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if absent := _absent():
            _install(absent)


def _install(absent: list[str]) -> None:
    with step(f"installing {', '.join(absent)}"):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-qy", "--no-install-recommends", *absent]):
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise NodeMissingError(f"{' '.join(command)} failed: {done.stderr.strip()[-400:]}")


def build() -> dict[str, Path]:
    """Every program of the node, one after the other, from the cache where nothing has changed."""
    chosen = {"kubelet": kubelet()}
    try:
        return {name: toolchain.build(chosen.get(name, name)) for name in toolchain.NODE_PROGRAMS}
    except toolchain.ToolchainMissingError as missing:
        raise NodeMissingError(str(missing)) from None


def kubelet() -> str:
    """Which one NODE_KUBERNETES names, by its minor version: 1.35, or v1.35.4."""
    asked = os.environ.get("NODE_KUBERNETES", "")
    minor = ".".join(asked.removeprefix("v").split(".")[:2])
    usual = toolchain.required(toolchain.NODE_ROOT / "kubernetes", "k8s.io/kubernetes")
    if not asked or usual.startswith(f"v{minor}."):
        return "kubelet"
    name = f"kubelet-{minor}"
    if name not in toolchain.KUBELETS:
        known = ", ".join(one.removeprefix("kubelet-") for one in toolchain.KUBELETS)
        raise NodeMissingError(f"NODE_KUBERNETES={asked}: there are {usual} and {known}; see tests/node/go")
    return name


def _absent() -> list[str]:
    return [package for package, file in PACKAGES.items() if not file.exists()]
