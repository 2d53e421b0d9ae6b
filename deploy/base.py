"""A base image from this machine: the Python that runs this, with pip, where no registry of images can be reached.

Gives a directory that `FROM` can stand on after a `COPY` of it. The image made on it is made by the same Containerfile.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from deploy import bill, parts

STRIP = "strip"  # of binutils
# Long part of the C library itself, but packages that are built for older systems ask for them.
EMPTY = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libm.so.6")


def make(root: Path) -> None:
    spec = importlib.util.find_spec("pip")
    if spec is None or spec.origin is None:
        raise parts.PartMissing("this Python has no pip to install the packages of the image: python3 -m ensurepip")
    parts.copy_interpreter(root, lean=False)
    shutil.copytree(Path(spec.origin).parent, root / parts.packages() / "pip")
    taken = parts.copy_libraries(root, EMPTY) + parts.copy_files(root)
    _strip(root)
    for record in [*bill.owned(taken), bill.DPKG / "status"]:
        if record.exists():
            parts.copy(record, root / record.relative_to("/"))
    for file in bill.copyrights(taken):
        parts.copy(file, root / file.relative_to("/"))
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)


def _strip(root: Path) -> None:
    """A Python that was compiled on this machine has symbols for a debugger. Published bases have none."""
    if shutil.which(STRIP) is None:
        raise parts.PartMissing(f"{STRIP} is not on this machine: install binutils")
    files = [
        file
        for file in parts.binaries(root)
        if file.name.startswith(("python", "libpython")) or "lib-dynload" in file.parts
    ]
    subprocess.run([STRIP, "--strip-unneeded", *map(str, files)], check=True)
