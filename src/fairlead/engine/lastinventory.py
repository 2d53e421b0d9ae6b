"""The last inventory of each backend, kept over restarts of the daemon: what may be offered while a first scan is slow.

A driver may take seconds for its first answer, and a kubelet that restarts meanwhile fails the pods that hold devices.
The file says what a scan found. It counts only within the same boot, for the same options and version, for a short
time, with the same device nodes, and if every device was well. The scan that follows confirms it or takes its place.
It counts once: who reads it takes it away, and the next scan that works writes a new one. A daemon that dies in its
first scan, again and again, offers devices the first time only.

Owns the file and these rules. A file that is damaged, hostile or old is as good as none.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fairlead.engine.validate import check_findings
from fairlead.kit import files
from fairlead.model.device import Device
from fairlead.model.errors import BackendError
from fairlead.model.inventory import Findings, Links

VERSION = 1
FILE_MAX_BYTES = 4 * 2**20
BACKENDS_MAX = 64
MAX_AGE_S = 900.0  # since a scan last confirmed it
CONFIRM_S = 300.0  # while nothing changes, it is written anew this often
Look = Callable[[str], int | None]  # the device number of a node; None: there is no such node


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """What one backend found."""

    options: str  # the fingerprint of its options and its code
    confirmed_s: float  # the monotonic clock, which counts from the boot
    well: bool  # no device was withdrawn
    devices: tuple[Device, ...]
    links: tuple[tuple[str, str, int], ...] = ()
    nodes: dict[str, int] = {}  # device numbers of those nodes that this process could see


class Saved(Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    boot: str
    entries: dict[str, Entry]


def fingerprint(depends: Mapping[str, Any]) -> str:
    """Of what the devices that a backend finds depend on. Against a mistake only, and options may hold secrets."""
    text = msgspec.json.encode(depends, order="deterministic", enc_hook=str)
    return f"{len(text)}-{zlib.crc32(text):08x}"  # hashlib would cost a third of a megabyte


def make_entry(found: Findings, options: str, now_s: float, look: Look, *, well: bool) -> Entry:
    links = tuple((one, other, score) for (one, other), score in found.links.items())
    numbers = {node.path: look(node.path) for device in found.devices for node in device.nodes}
    nodes = {path: number for path, number in numbers.items() if number is not None}
    return Entry(options, now_s, well, found.devices, links, nodes)


def encode(saved: Saved) -> bytes:
    return msgspec.json.encode(saved)


def decode(content: bytes) -> Saved:
    """ValueError for anything but what `encode` makes."""
    try:
        saved = msgspec.json.decode(content, type=Saved)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ValueError("it holds something else than an inventory") from None
    if saved.version != VERSION:
        raise ValueError(f"its version is {saved.version}, and {VERSION} is known")
    if len(saved.entries) > BACKENDS_MAX:
        raise ValueError(f"it is of {len(saved.entries)} backends")
    return saved


def why_not(entry: Entry, options: str, now_s: float, look: Look) -> str:
    """Why this must not be offered before a scan; empty if it may."""
    if entry.options != options:
        return "the options of the backend, or the version, were others"
    if not 0 <= now_s - entry.confirmed_s <= MAX_AGE_S:  # a clock of another time namespace may be behind
        return f"no scan has confirmed it for {MAX_AGE_S:.0f} s"
    if not entry.devices:
        return "it has no device"
    if not entry.well:
        return "a device was not well, and how it is now is not known"
    for path, number in entry.nodes.items():
        if look(path) != number:
            return f"{path} is another node, or gone"
    return ""


def findings_of(entry: Entry) -> Findings:
    """Within the bounds of a scan's answer. BackendError for what is not."""
    known = {device.id for device in entry.devices}
    if any(one not in known or other not in known for one, other, _ in entry.links):
        raise BackendError("a link joins a device that is not there")
    found = check_findings(Findings(entry.devices, Links({(one, other): score for one, other, score in entry.links})))
    if found.problems:
        raise BackendError(found.problems[0])
    return found


class LastInventory:
    """The file. `boot` empty: the boot is not known, and nothing is read or written."""

    def __init__(self, path: Path, boot: str, look: Look | None = None) -> None:
        self._path, self._boot = path, boot
        self._look = look or node_number
        self._options: dict[str, str] = {}
        self._entries: dict[str, Entry] = {}  # that a scan of this process has confirmed
        self.problem = ""  # why it cannot be written

    def configure(self, backends: Mapping[str, Mapping[str, Any]]) -> None:
        """The backends that there are now, by name, with what their devices depend on."""
        self._options = {name: fingerprint(depends) for name, depends in backends.items()}
        self._entries = {
            name: entry for name, entry in self._entries.items() if self._options.get(name) == entry.options
        }

    def take(self, now_s: float) -> tuple[Mapping[str, Findings], Mapping[str, str]]:
        """What may be offered before a scan, by backend; and of the others that are in the file, why not.

        The file is gone then.
        """
        usable: dict[str, Findings] = {}
        refused: dict[str, str] = {}
        if not self._boot:
            return {}, {}
        try:
            content = files.read_own(self._path, FILE_MAX_BYTES)
            self._path.unlink()
            saved = decode(content)
        except FileNotFoundError:
            return {}, {}
        except (OSError, ValueError) as error:
            why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            return {}, dict.fromkeys(self._options, why)
        if saved.boot != self._boot:
            return {}, dict.fromkeys(self._options, "it is of another boot")
        for name, entry in saved.entries.items():
            if name not in self._options:
                continue
            reason = why_not(entry, self._options[name], now_s, self._look)
            try:
                if not reason:
                    usable[name] = findings_of(entry)
            except BackendError as error:
                reason = str(error)
            if reason:
                refused[name] = reason
        return usable, refused

    def note(self, name: str, found: Findings, now_s: float, *, well: bool) -> None:
        """A scan has worked. Writes if something changed, or if what is written grows old."""
        options, was = self._options.get(name), self._entries.get(name)
        if options is None or not self._boot:
            return
        fresh = make_entry(found, options, now_s, self._look, well=well)
        if was is not None and now_s - was.confirmed_s < CONFIRM_S and _content(was) == _content(fresh):
            return
        self._write(name, fresh)

    def note_ill(self, name: str) -> None:
        """A device was withdrawn. At once: the scan that would say so may never come."""
        was = self._entries.get(name)
        if was is not None and was.well:
            self._write(name, replace(was, well=False))

    def _write(self, name: str, fresh: Entry) -> None:
        self._entries[name] = fresh
        content = encode(Saved(VERSION, self._boot, self._entries))
        try:
            if len(content) > FILE_MAX_BYTES:
                self._path.unlink(missing_ok=True)
                self.problem = f"{self._path}: {len(content):,} bytes are more than {FILE_MAX_BYTES:,}"
            else:
                files.replace(self._path, content, 0o600)  # not synced: what a crash of the host takes is of no use
                self.problem = ""
        except OSError as error:
            self.problem = f"{self._path}: {error.strerror or error}"
            with suppress(OSError):
                self._path.unlink(missing_ok=True)  # an old one must not be taken for this one


def node_number(path: str) -> int | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path for it is waste
    except (OSError, ValueError):
        return None
    return found.st_rdev if stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode) else None


def _content(entry: Entry) -> tuple[object, ...]:
    return entry.options, entry.well, entry.devices, frozenset(entry.links), entry.nodes
