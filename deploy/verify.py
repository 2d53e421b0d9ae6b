"""What must be true of a built image: its size, its labels and user, and that each name in it starts its program.

Programs run in a chroot of the unpacked image, as root and as the user 65532. Judges; builds nothing.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy import archive, rootfs

MOST_BYTES = 50_000_000  # unpacked: the sum of all files
LABELS = "org.opencontainers.image."
PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Report:
    unpacked_bytes: int
    packed_bytes: int
    names: int
    parts: int
    faults: tuple[str, ...]

    def text(self, path: Path, name: str) -> str:
        return (
            f"{path}: {name}\n"
            f"{self.unpacked_bytes / 1e6:.1f} MB unpacked (at most {MOST_BYTES / 1e6:.0f}), "
            f"{self.packed_bytes / 1e6:.1f} MB gzip; {self.names} names on other systems' paths; "
            f"{self.parts} components in the bill of materials"
        )


def check(path: Path, bill: Path, base: str, version: str) -> Report:
    """Also puts the bill of materials of the image into the file `bill`."""
    image = archive.read(path)
    size = image.unpacked_bytes
    with tempfile.TemporaryDirectory(prefix="fairlead-unpacked-") as directory:
        root = Path(directory) / "root"  # a temporary directory itself is closed to other users
        image.unpack(root)
        names = rootfs.places(root / rootfs.PACKAGES)
        bill.write_text((root / rootfs.BILL).read_text())
        faults = [*_of_the_config(image, base, version), *_of_the_bill(root), *_of_programs(root, names)]
    if size > MOST_BYTES:
        faults.append(f"{size:,} bytes unpacked, and {MOST_BYTES:,} are allowed")
    parts = json.loads(bill.read_text())["components"]
    return Report(size, image.packed_bytes, len(names), len(parts), tuple(faults))


def _of_the_config(image: archive.Archive, base: str, version: str) -> Iterator[str]:
    run = image.run
    if run.get("User") != "0:0":
        yield f"USER is {run.get('User')!r}, not 0:0"
    if run.get("Entrypoint") != ["fairlead"]:
        yield f"ENTRYPOINT is {run.get('Entrypoint')!r}, not fairlead"
    if run.get("Cmd"):
        yield f"CMD is {run['Cmd']!r}: it would be arguments of every pod that sets none"
    labels = run.get("Labels") or {}
    wanted = {"version": version, "licenses": "Apache-2.0", "base.name": base, "title": "Fairlead"}
    for key, value in wanted.items():
        if labels.get(LABELS + key) != value:
            yield f"the label {LABELS}{key} is {labels.get(LABELS + key)!r}, not {value!r}"
    for key in ("revision", "source"):
        if LABELS + key not in labels:
            yield f"there is no label {LABELS}{key}"


def _of_the_bill(root: Path) -> Iterator[str]:
    """Every shared library outside of Python's own places is a part of it."""
    parts = json.loads((root / rootfs.BILL).read_text())["components"]
    told = {Path(each["value"]).name for part in parts for each in part.get("properties", ())}
    for path in sorted([*root.glob("lib*/**/*.so*"), *root.glob("usr/lib*/**/*.so*")]):
        if path.is_file() and path.name not in told:
            yield f"/{path.relative_to(root)} is in the image, and not in its bill of materials"


def _of_programs(root: Path, names: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    plain = run(root, "/usr/bin/fairlead", "version")
    if plain.returncode != 0:
        yield f"fairlead version ended with {plain.returncode}: {plain.stderr.strip()[-400:]}"
        return
    for place, command in names.items():
        done = run(root, place, "--help", user=rootfs.USER)
        if done.returncode != 0 or not done.stdout.startswith(f"Usage: fairlead {' '.join(command)}"):
            yield f"{place} --help ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-400:]}"
    written = [path for path in root.rglob("*.pyc") if path.stat().st_mtime > (root / rootfs.LAUNCHER).stat().st_ctime]
    if written:
        yield f"byte code was missing, and was made by a start: /{written[0].relative_to(root)}"


def run(root: Path, *command: str, user: int = 0) -> subprocess.CompletedProcess[str]:
    """In the image, without /proc and /dev, and with its PATH alone."""
    process = start(root, *command, user=user)
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += f"not done after {PATIENCE_S} s"
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def start(root: Path, *command: str, user: int = 0) -> subprocess.Popen[str]:
    """The same, for a program that does not end by itself."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        ["chroot", f"--userspec={user}:{user}", str(root), *command],
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )
