"""Which unit of memory each resource is cut with, kept over restarts: a small file per resource.

It lies in the kubelet's plugin directory, which every device plugin can write: the kubelet removes sockets there, and
leaves files. A dot file, because the kubelet counts the others as checkpoints. Pods keep their ids over a reboot, and
so the file keeps its meaning; the boot is written down as a fact and decides nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from binascii import crc32
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from fairlead.model.names import ResourceName
from fairlead.policy.offering.memory import MIB

VERSION = 1
FILE_MAX_BYTES = 4096
FILES_MAX = 256
UNIT_MAX_BYTES = 1 << 50
RETRY_S = 10.0  # a disk that fails is slow as well, and the event loop waits for it
_SUFFIX = ".unit"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _Entry(Struct, frozen=True):
    version: int
    resource: str
    unit_mib: int
    boot: str = ""


class UnitFiles:
    """`units` is what holds now. Without a directory it is kept in this process only."""

    def __init__(self, directory: Path | None = None) -> None:
        self.units: dict[ResourceName, int] = {}
        self.damaged: dict[str, str] = {}  # file name -> what is wrong with it
        self._directory = directory
        self._written: dict[ResourceName, int] = {}
        self._failed: dict[ResourceName, tuple[int, float, str]] = {}  # unit, when, and why

    def read(self) -> None:
        """What an earlier daemon wrote. A file that cannot be read is remembered as damaged."""
        if self._directory is None:
            return
        try:
            with os.scandir(self._directory) as found:
                names = sorted(one.name for one in found if one.name.startswith(".") and one.name.endswith(_SUFFIX))
        except OSError:
            return  # there is none, or the daemon is about to say why it cannot serve here
        for name in names[:FILES_MAX]:
            try:
                entry = _decode(_read(self._directory / name), name)
            except (OSError, ValueError) as error:
                self.damaged[name] = error.strerror or str(error) if isinstance(error, OSError) else str(error)
                continue
            resource = ResourceName(entry.resource)
            self.units[resource] = self._written[resource] = entry.unit_mib * MIB

    def damage(self, resource: ResourceName) -> str:
        """What is wrong with the file of this resource; empty if it is good, or if there is none."""
        why = self.damaged.get(file_name(resource))
        return f"{self._path(resource)} cannot be read ({why})" if why else ""

    def keep(self, units: Mapping[ResourceName, int]) -> None:
        """From now on these; others stay as they were."""
        self.units |= units

    def forget_damage(self, resource: ResourceName) -> None:
        self.damaged.pop(file_name(resource), None)

    def where(self, resource: ResourceName) -> str:
        return str(self._path(resource)) if self._directory else "its file"

    def save(self, now_s: float) -> str:
        """Writes what has changed. Answers what went wrong, if anything; a failure is not repeated for `RETRY_S`."""
        for resource, unit_bytes in self.units.items():
            same = self._written.get(resource) == unit_bytes
            if self._directory is None or same or file_name(resource) in self.damaged:
                continue
            failed_bytes, failed_s, _ = self._failed.get(resource, (0, 0.0, ""))
            if failed_bytes == unit_bytes and now_s - failed_s < RETRY_S:
                continue
            self._failed.pop(resource, None)
            try:
                _write(self._path(resource), _Entry(VERSION, resource, unit_bytes // MIB, boot_id()))
                self._written[resource] = unit_bytes
            except OSError as error:
                why = (
                    f"the unit of {resource} cannot be written to {self._path(resource)}: {error.strerror or error}. "
                    "A restart may take another unit while pods hold some: make room there, or drain the node first"
                )
                self._failed[resource] = unit_bytes, now_s, why
        return "; ".join(why for _, _, why in self._failed.values())

    def _path(self, resource: ResourceName) -> Path:
        return (self._directory or Path()) / file_name(resource)


def file_name(resource: ResourceName) -> str:
    """One for each resource, whatever daemon serves it. A name may be longer than a file's."""
    plain = "".join(char if char.isalnum() or char in "-." else "_" for char in resource)[:80]
    return f".{plain}-{crc32(resource.encode()):08x}{_SUFFIX}"


def _decode(content: bytes, name: str) -> _Entry:
    try:
        entry = msgspec.json.decode(content, type=_Entry)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ValueError("it holds something else than a unit") from None
    if entry.version != VERSION:
        raise ValueError(f"its version is {entry.version}, and {VERSION} is known")
    if file_name(ResourceName(entry.resource)) != name:
        raise ValueError(f"it is about {entry.resource!r:.80}, which another file is for")
    if not 0 < entry.unit_mib * MIB <= UNIT_MAX_BYTES:
        raise ValueError(f"{entry.unit_mib} MiB is no unit")
    return entry


def _read(path: Path) -> bytes:
    # Whatever lies there: a link is not followed, a pipe is not waited for, and a long file is not read.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        if found.st_size > FILE_MAX_BYTES:
            raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes")
        return os.read(fd, FILE_MAX_BYTES)
    finally:
        os.close(fd)


def _write(path: Path, entry: _Entry) -> None:
    """All or nothing, and on the disk before anything is offered in this unit."""
    beside = path.with_suffix(".unit-new")
    with suppress(FileNotFoundError):
        beside.unlink()  # of a daemon that was killed
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, msgspec.json.encode(entry))
        os.fsync(fd)
    finally:
        os.close(fd)
    beside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def boot_id() -> str:
    """Of the running kernel; empty where it is not known."""
    try:
        return _BOOT_ID.read_text(encoding="utf-8").strip()[:36]
    except (OSError, ValueError):
        return ""
