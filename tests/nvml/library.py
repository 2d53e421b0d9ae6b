"""Compiles the simulated `libnvidia-ml.so.1` into a cache outside the work tree.

Owns finding the compiler and the cache key. Must not know what the library does.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "c"
SONAME = "libnvidia-ml.so.1"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
# Only nvml* leaves the library: its inner names must not meet those of the program that loads it.
# Bound to itself: two copies in one process, of two nodes, are two drivers.
LINK = ("-Wl,-Bsymbolic", f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={SOURCES / 'exports.map'}", "-lpthread")


class CompilerMissingError(Exception):
    """This machine has no C compiler."""


class CompileFailedError(Exception):
    """There is a compiler, and it refuses."""


def compiled() -> Path:
    """The library's path, from the cache where its sources are unchanged."""
    sources = sorted(SOURCES.glob("*.c"))
    return _build(SONAME, [*FLAGS, *map(str, sources), *LINK], sorted(SOURCES.iterdir()))


def compiled_empty(name: str) -> Path:
    """A shared library with nothing in it, for programs that only ask whether it can be loaded."""
    return _build(name, ["-shared", "-fPIC", "-x", "c", "/dev/null", f"-Wl,-soname,{name}"], [])


def compiled_or_skip() -> Path:
    """For tests: skips where there is no compiler, except in CI, where that is a failure."""
    try:
        return compiled()
    except CompilerMissingError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must have what this test needs: {missing}", pytrace=False)
        pytest.skip(str(missing))


def _build(name: str, arguments: list[str], sources: list[Path]) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CompilerMissingError("no C compiler found; the simulated NVIDIA driver needs one (apt install gcc)")
    # A directory of its own: the file must carry its soname, or the loader would not know it again.
    library = _cache_dir() / _fingerprint(compiler, arguments, sources) / name
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with (library.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test workers may want it at once
        if not library.exists():
            fresh = library.with_suffix(f".{os.getpid()}")
            command = [compiler, *arguments, "-o", str(fresh)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise CompileFailedError(f"{name} does not compile:\n{done.stderr.strip()}")
            fresh.replace(library)
    return library


def _cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fairlead" / "nvml"


def _fingerprint(compiler: str, arguments: list[str], sources: list[Path]) -> str:
    digest = hashlib.sha256(f"{compiler}\0{arguments}".encode())
    for source in sources:
        digest.update(f"\0{source.name}\0".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def missing_driver() -> str | None:
    """Why there is no simulated driver here."""
    try:
        compiled()
    except CompilerMissingError as error:
        return str(error)
    return None
