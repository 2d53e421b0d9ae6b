"""Builds `fairlead.pyz`: our wheel and its pinned dependencies, byte-compiled, behind a bootstrap.

The same sources, pins and Python give the same file, byte for byte. Needs pip and a package index; knows nothing of
where the file is used.
"""

from __future__ import annotations

import compileall
import hashlib
import io
import os
import platform
import py_compile
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from deploy.onefile.bootstrap import MANIFEST, PAYLOAD

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "requirements" / "constraints.txt"
BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
COMMENT = b"fairlead one-file"  # at the end of the archive: by it `fairlead install-host` knows its own file
SHEBANG = b"#!/usr/bin/env python3\n"
DATE = (1980, 1, 1, 0, 0, 0)  # the first that an archive can say
# Says where and how it was installed, not what it is; or belongs to programs that are not run from here.
LEFT_OUT = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
# The archive's own first file. The bootstrap is beside it, compiled and as source, for a Python that it is not for.
MAIN = b"""import sys
if sys.version_info < (3, 11):
    sys.exit("Fairlead needs Python 3.11 or newer; this is " + sys.version.split()[0])
import bootstrap
bootstrap.run(sys.argv[0], __loader__.get_data(sys.path[0] + "/manifest").decode())
"""


class BuildFailed(Exception):
    """What pip said."""


def build(output: Path, more: Sequence[str] = ()) -> str:
    """Writes the file. `more`: further packages, such as a backend of your own. Answers with the digest."""
    with tempfile.TemporaryDirectory(prefix="fairlead-onefile-") as made:
        tree = Path(made) / "tree"
        install(tree, more)
        clean(tree)
        compile_all(tree)
        return write(tree, output)


def install(tree: Path, more: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    # Wheels only: what a source package runs while it is built would be of no known version.
    command += ["--only-binary", ":all:", "--no-binary", "fairlead", "--target", str(tree), "-c", str(PINS)]
    done = subprocess.run([*command, str(ROOT), *more], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildFailed(f"pip could not install it: {done.stderr.strip()[-800:]}")


def clean(tree: Path) -> None:
    shutil.rmtree(tree / "bin", ignore_errors=True)
    for name in LEFT_OUT:
        for path in tree.glob(f"*.dist-info/{name}"):
            path.unlink()
    for cache in list(tree.rglob("__pycache__")):
        shutil.rmtree(cache)


def compile_all(tree: Path) -> None:
    """Byte code that is not compared with its source at each start: both lie in a directory that does not change."""
    good = compileall.compile_dir(
        tree, quiet=2, stripdir=str(tree), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    if not good:
        raise BuildFailed("a module of the packages cannot be compiled")


def write(tree: Path, output: Path) -> str:
    files = {path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    digest = hashlib.sha256()
    sizes = []
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as payload:
        for name, content in sorted(files.items()):
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
            sizes.append(f"{len(content)} {name}\n")
            _add(payload, name, content)
    head = f"{digest.hexdigest()} {sys.implementation.cache_tag} {platform.machine()}\n"
    source = BOOTSTRAP.read_bytes()
    output.parent.mkdir(parents=True, exist_ok=True)
    beside = output.with_name(f".{output.name}.{os.getpid()}")
    with beside.open("wb") as file:
        file.write(SHEBANG)
        with zipfile.ZipFile(file, "w") as outer:
            _add(outer, "__main__.py", MAIN)
            _add(outer, "bootstrap.pyc", _byte_code(source))
            _add(outer, "bootstrap.py", source)
            _add(outer, MANIFEST, (head + "".join(sizes)).encode())
            _add(outer, PAYLOAD, inner.getvalue(), zipfile.ZIP_STORED)
            outer.comment = COMMENT
    beside.chmod(0o755)
    beside.replace(output)
    return digest.hexdigest()


def _add(archive: zipfile.ZipFile, name: str, content: bytes, how: int = zipfile.ZIP_DEFLATED) -> None:
    entry = zipfile.ZipInfo(name, DATE)
    entry.compress_type, entry.external_attr = how, 0o644 << 16
    archive.writestr(entry, content, compresslevel=9)


def _byte_code(source: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "bootstrap.py"
        path.write_bytes(source)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compiled = py_compile.compile(str(path), f"{path}c", "fairlead.pyz/bootstrap.py", True, invalidation_mode=mode)
        assert compiled is not None  # it raises instead
        return Path(compiled).read_bytes()
