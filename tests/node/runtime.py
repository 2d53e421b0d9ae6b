"""The image people would deploy, without a container engine: the project's wheel over the Python that runs the tests.

Two layers: the interpreter with its standard library and shared libraries; the packages. No shell, no package manager.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable
from pathlib import Path

from tests.node.rig.images import Image, add
from tests.node.rig.steps import NodeFailedError

ROOT = Path(__file__).parents[2]
NAME = "localhost/fairlead-node/fairlead:1"
PYTHON = "usr/local/bin/python3"
# Large, and of no use to a daemon.
LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages", "pydoc_data"}
LIBRARIES = "lib"  # where the loader looks by itself


def make(work: Path) -> Image:
    packages = work / "packages"
    _install(packages)
    command = (f"/{PYTHON}", "-m", "fairlead", "run", "--config", "/etc/fairlead/fairlead.yaml")
    env = {"PATH": "/usr/local/bin", "PYTHONPATH": "/packages", "PYTHONDONTWRITEBYTECODE": "1"}
    return Image(NAME, (_interpreter(packages), _tree(packages, "packages")), command, env)


def _install(packages: Path) -> None:
    pins = ["-c", str(ROOT / "requirements" / "constraints.txt")]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(packages)]
    done = subprocess.run([*pip, *pins, str(ROOT)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NodeFailedError(f"the project does not install: {done.stderr.strip()[-400:]}")


def _interpreter(packages: Path) -> bytes:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    binary, library = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    modules = [*library.glob("lib-dynload/*.so"), *packages.rglob("*.so")]
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for directory in ("proc", "sys", "dev", "run", "etc"):
            add(tar, directory, mode=0o755, kind=tarfile.DIRTYPE)
        add(tar, "tmp", mode=0o1777, kind=tarfile.DIRTYPE)
        tar.add(binary, PYTHON, filter=_plain)
        tar.add(library, f"usr/local/lib/{version}", filter=_lean)
        for path in _needed([binary, *modules]):
            # The loader itself is asked for by its full path, the others by name.
            place = str(path).lstrip("/") if path.name.startswith("ld-") else f"{LIBRARIES}/{path.name}"
            tar.add(path.resolve(), place, filter=_plain)
    return content.getvalue()


def _needed(binaries: Iterable[Path]) -> list[Path]:
    """The shared libraries that they are linked with."""
    found: dict[str, Path] = {}
    for binary in binaries:
        told = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False).stdout
        for path in map(Path, re.findall(r"(?:=> |^\s+)(/\S+) \(0x", told, re.MULTILINE)):
            found.setdefault(path.name, path)
    return list(found.values())


def _tree(directory: Path, place: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.add(directory, place, filter=_plain)
    return content.getvalue()


def _lean(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = entry.name.split("/")
    if LEFT_OUT.intersection(parts) or any(part.startswith("config-") for part in parts):
        return None
    return _plain(entry)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same owner wherever it is built. The time stays: compiled modules are checked against it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
