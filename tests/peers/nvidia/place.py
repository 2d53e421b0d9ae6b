"""A private root for one program: the host's files, and over them those of a machine with a simulated driver.

The program gets a mount namespace of its own. Its root is an overlay: the machine's files on top, the host's root
below, so that a Python program finds its interpreter. /dev and /sys are the machine's alone; /proc is the host's with
the machine's /proc/driver. What the program writes goes to memory and is gone with it, except in the directories that
are shared with us.

Owns the namespace and those directories. Must not know which program runs. Needs root.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.nvml import Driver, Node

PLUGINS = "/var/lib/kubelet/device-plugins"
CDI = "/run/cdi"
CONFIG = "/config"
CONTROL = "/run/fairlead-nvml"  # where the library looks unless it is told otherwise
FAKE_MPS_FAILS = "/etc/fakemps.fail"
# Hidden from the host's root: what a machine of the recordings does not have.
HIDDEN = ("etc/ld.so.cache", "run/udev")
_FAKE_MPS = f"#!/bin/sh\ncat >/dev/null\n[ ! -e {FAKE_MPS_FAILS} ]\n"
_PLAIN_NODES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9)}

_SCRIPT = """set -e
mount -t tmpfs -o mode=755 fairlead-peer {base}
mkdir {base}/made {base}/upper {base}/work {base}/root
cp -a {machine}/. {base}/made
rm -rf {base}/made/dev {base}/made/proc {base}/made/sys
{hide}
{loader}
mount -t overlay overlay -o lowerdir={base}/made:/,upperdir={base}/upper,workdir={base}/work {base}/root
cd {base}/root
mkdir -p {kubelet} {inside}
mount --rbind /proc proc
mount --bind {machine}/proc/driver proc/driver
mount --bind {machine}/dev dev
mount --bind {machine}/sys sys
mount --bind {plugins} {kubelet}
{binds}
exec /usr/sbin/chroot . "$@"
"""


class Place:
    def __init__(self, node: Node, directory: Path, programs: Mapping[str, Path]) -> None:
        self.node = node
        self.plugins = directory / "plugins"
        self.cdi = directory / "cdi"
        self.config = directory / "config"
        self._base = directory / "base"
        for made in (self.plugins, self.cdi, self.config, self._base):
            made.mkdir()
        self._shared = {CDI: self.cdi, CONFIG: self.config, CONTROL: node.control}
        self._programs = dict(programs)
        for name, (major, minor) in _PLAIN_NODES.items():
            os.mknod(node.root / "dev" / name, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
        (node.root / "dev/shm").mkdir()

    def command(self, words: Iterable[str], plugins: str | None = None) -> list[str]:
        """What to run so that these words run inside. It keeps its process id: signals reach the program itself.

        `plugins` is another directory than this place's own in which the kubelet's socket lies.
        """
        script = self._script(plugins or str(self.plugins))
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *words]

    def write_config(self, text: str) -> None:
        (self.config / "config.yaml").write_text(text)

    def put_mps_control(self, *, failing: bool) -> None:
        """An nvidia-cuda-mps-control that takes any command; or refuses, until the file in /etc is gone."""
        fake = self.node.root / "usr/bin/nvidia-cuda-mps-control"
        fake.parent.mkdir(parents=True, exist_ok=True)
        fake.write_text(_FAKE_MPS)
        fake.chmod(0o755)
        if failing:
            mark = self.node.root / FAKE_MPS_FAILS.lstrip("/")
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()

    def _script(self, plugins: str) -> str:
        base = shlex.quote(str(self._base))
        hidden = [path for path in HIDDEN if not (self.node.root / path).exists()]
        hide = [f"mkdir -p {base}/made/{Path(path).parent}\nmknod {base}/made/{path} c 0 0" for path in hidden]
        binds = {**self._shared, **self._programs, **_other_mounts()}
        return _SCRIPT.format(
            base=base,
            machine=shlex.quote(str(self.node.root)),
            hide="\n".join(hide),
            loader="\n".join(_keep_loader(base)),
            kubelet=PLUGINS.lstrip("/"),
            plugins=shlex.quote(plugins),
            inside=" ".join(shlex.quote(path.lstrip("/")) for path, host in binds.items() if host.is_dir()),
            binds="\n".join(_bind(path, host) for path, host in binds.items()),
        )


@contextmanager
def placed(driver: Driver, programs: Mapping[str, Path]) -> Iterator[Place]:
    """A place for this driver. Its directory's name is short: a unix socket's path has room for 107 bytes."""
    directory = Path(tempfile.mkdtemp(prefix="peer-"))
    try:
        with driver.installed(directory / "node") as node:
            yield Place(node, directory, programs)
    finally:
        shutil.rmtree(directory)


def needs_root() -> str | None:
    """Why no place can be made here."""
    return None if os.geteuid() == 0 else "a private root takes root: mount namespaces and device nodes"


def _keep_loader(base: str) -> Iterator[str]:
    """The machine's /lib is a directory and hides the host's, which may be a link: it must hold the loader."""
    for loader in Path("/lib").glob("*-linux-gnu/ld-linux*"):
        folder = f"{base}/made{loader.parent}"
        yield f"[ ! -d {base}/made/lib ] || {{ mkdir -p {folder}; cp -L {loader} {folder}; }}"


def _bind(path: str, host: Path) -> str:
    inside = shlex.quote(path.lstrip("/"))
    touch = "" if host.is_dir() else f"mkdir -p {shlex.quote(str(Path(path.lstrip('/')).parent))}\ntouch {inside}\n"
    return f"{touch}mount --bind {shlex.quote(str(host))} {inside}"


def _other_mounts() -> dict[str, Path]:
    """What our own program needs and an overlay of the host's root does not show: it lies on another file system."""
    import sys

    needed = {Path(__file__).parents[3], Path(sys.prefix), Path(sys.base_prefix)}
    host = Path("/").stat().st_dev
    return {str(path): path for path in needed if path.stat().st_dev != host}
