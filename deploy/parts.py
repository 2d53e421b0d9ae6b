"""The parts of a machine that a Python program needs: the interpreter, its standard library, shared libraries, files.

Runs in the first stage of deploy/Containerfile and where a base is made (deploy/base.py): only the standard library,
no command but the dynamic loader. Knows no engine and no registry.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

HOME = "usr/local"  # where the interpreter is in the image, wherever it was before
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
PYTHON = f"{HOME}/bin/python3"
LIBRARY = f"{HOME}/lib/{VERSION}"
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
RELEASE = ("/etc/os-release", "/etc/debian_version")  # NVIDIA's runtime looks at these for where libraries belong

# Of the standard library: large, and of no use to a daemon or to a plugin written with the library.
LEFT_OUT = frozenset(
    {
        *("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data", "__phello__"),
        *("site-packages", "dist-packages", "__pycache__", "distutils", "venv", "unittest", "sqlite3", "dbm", "curses"),
        *("msilib", "wsgiref", "xmlrpc", "turtle.py", "pydoc.py", "doctest.py", "antigravity.py", "pickletools.py"),
    }
)
LEFT_OUT_NAMES = re.compile(
    r"config-.*|_pydecimal\.py"
    r"|(_test.*|_ctypes_test|_xx.*|xx.*|_sqlite3|_tkinter|_curses.*|readline|_dbm|_gdbm|nis|audioop|ossaudiodev|_crypt|spwd"
    r"|_codecs_(cn|hk|iso2022|jp|kr|tw)|_multibytecodec)\..*\.so"
)
# Not in any list of needs, because the C library loads them by itself: names, and the end of a thread.
LOADED_LATER = ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2", "libgcc_s.so.1")


class PartMissing(Exception):
    """Something that the image needs is not on this machine."""


def copy_interpreter(root: Path, *, lean: bool) -> None:
    """`lean`: without what a daemon does not need. A base keeps it, to be a base like any other."""
    binary = Path(sys.executable).resolve()
    target = root / HOME / "bin" / VERSION
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(binary, target)
    target.chmod(0o755)
    (root / PYTHON).symlink_to(VERSION)
    library = Path(sysconfig.get_path("stdlib"))
    ignore = _ignore if lean else shutil.ignore_patterns("test", "idlelib", "site-packages", "dist-packages")
    shutil.copytree(library, root / LIBRARY, ignore=ignore, dirs_exist_ok=True)
    (root / packages()).mkdir(parents=True, exist_ok=True)


def packages() -> str:
    """Where this interpreter looks for packages, once it is in its new home."""
    return f"{LIBRARY}/{Path(sysconfig.get_path('purelib', 'posix_prefix')).name}"


def copy_libraries(root: Path, also: Iterable[str] = ()) -> list[Path]:
    """Every shared library that a file below `root` needs, and `also` these. Gives where each came from."""
    found: dict[str, Path] = {}
    for file in sorted(binaries(root)):
        found |= {path.name: path for path in needed(file)}
    libc = next((path for name, path in found.items() if name.startswith(("libc.so", "libc.musl"))), None)
    if libc is None:
        raise PartMissing(f"{sys.executable} needs no C library: an interpreter that is linked statically is no base")
    for name in (*LOADED_LATER, *also):
        if (path := libc.parent / name).exists():
            found.setdefault(name, path)
    loader = loader_of(Path(sys.executable).resolve())
    for path in found.values():
        # The loader is asked for by its full path; the others are found where it looks for the C library.
        place = loader if path.name == loader.name else libc.parent / path.name
        copy(path, root / place.relative_to("/"), 0o755)
    copy(loader, root / loader.relative_to("/"), 0o755)
    return sorted({*found.values(), loader})


def copy(source: Path, target: Path, mode: int = 0o644) -> None:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(mode)


def copy_files(root: Path) -> list[Path]:
    """Certificates of the base, where the base's OpenSSL looks, and the files that say what the base is."""
    import ssl  # noqa: PLC0415 - a base may lack it, and must say so

    bundle = next((Path(path) for path in BUNDLES if Path(path).is_file()), None)
    if bundle is None:
        raise PartMissing(f"no certificates in the base: none of {', '.join(BUNDLES)} exists")
    copy(bundle, root / "etc/ssl/certs/ca-certificates.crt")
    wanted = root / Path(ssl.get_default_verify_paths().openssl_cafile).relative_to("/")
    if not wanted.exists():
        wanted.parent.mkdir(parents=True, exist_ok=True)
        wanted.symlink_to("/etc/ssl/certs/ca-certificates.crt")
    taken = [path for path in map(Path, RELEASE) if path.exists()]
    for path in taken:
        copy(path, root / path.relative_to("/"))
    return [bundle, *taken]


def binaries(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if (
            path.is_file()
            and not path.is_symlink()
            and (".so" in path.name or path.parent.name == "bin")
            and _is_elf(path)
        ):
            yield path


def needed(file: Path) -> list[Path]:
    """The shared libraries that it is linked with, as the loader finds them on this machine."""
    command = [str(loader_of(Path(sys.executable).resolve())), "--list", str(file)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode != 0 or "=> not found" in told.stdout:
        lines = [
            line.strip() for line in (told.stdout + told.stderr).splitlines() if "not found" in line or "cannot" in line
        ]
        raise PartMissing(f"the base lacks what {file} needs: {'; '.join(lines) or told.stderr.strip()}")
    return [Path(path) for path in re.findall(r"=> (/\S+) \(0x", told.stdout)]


@functools.cache
def loader_of(binary: Path) -> Path:
    """The dynamic loader that an executable names (PT_INTERP)."""
    with binary.open("rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            raise PartMissing(f"{binary} is no 64-bit ELF executable")
        order = "<" if head[5] == 1 else ">"
        (offset,) = struct.unpack_from(f"{order}Q", head, 32)
        size, count = struct.unpack_from(f"{order}HH", head, 54)
        for number in range(count):
            file.seek(offset + number * size)
            kind, _, start, _, _, length = struct.unpack(f"{order}IIQQQQ", file.read(40))
            if kind == 3:
                file.seek(start)
                return Path(os.fsdecode(file.read(length).rstrip(b"\0")))
    raise PartMissing(f"{binary} names no dynamic loader")


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _ignore(_directory: str, names: Iterable[str]) -> set[str]:
    return {name for name in names if name in LEFT_OUT or LEFT_OUT_NAMES.fullmatch(name)}
