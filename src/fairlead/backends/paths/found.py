"""What a finder is asked, and what it answers: devices with their identity, their files and their faults.

The common interface of all finders. Everything that is read is bounded in size, depth and number. Blocking: all of it
runs on the owner thread.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from fairlead.kit import files
from fairlead.kit.hostroot import WILDCARD, HostRoot, is_gone
from fairlead.kit.text import printable
from fairlead.model.device import DeviceNode
from fairlead.model.edits import Mount
from fairlead.model.health import Cause

__all__ = ["WILDCARD", "Finder", "Found", "Kind", "Look", "PathState", "base", "parent"]

MATCHES_MAX = 1024  # that one pattern or one directory of sysfs may give: a kubelet is slow with more devices
PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_USB_BUS = re.compile(r"/usb[0-9]+(/|$)")
_STEPS_MAX = 64  # no path of sysfs is as deep
_UP = frozenset({"", ".", ".."})  # no names of a file
_NUMA = re.compile(r"[0-9]{1,4}")


class Kind(StrEnum):
    """What may stand at a path."""

    DEVICE = "device"  # a character or block device
    FILE = "file"
    DIRECTORY = "directory"
    SOCKET = "socket"


class PathState(Struct, frozen=True):
    """A path and what stood there. A missing one has no kind."""

    path: str
    real: str = ""
    kind: str = ""
    number: str = ""  # "char 4:64"; empty for what is no device


class Found(Struct, frozen=True, kw_only=True):
    """A device as its finder sees it."""

    identity: str  # the same after a replug and a restart: a serial number, a PCI address, a path
    names: Mapping[str, str]  # what an entry's `name` may be made of; `name` is one of them
    states: tuple[PathState, ...]  # its files. One that is missing later is a fault
    index: str = ""  # what people call it
    position: str = ""  # where it is plugged in: tells two devices with one identity apart
    suffixed: bool = False  # another device may have the same name, even if none has it now
    where: str = ""  # its directory in sysfs, for NUMA node and PCI address. Empty: as sysfs has it for the nodes
    key: str = ""  # devices with one key are one thing under several names. Empty: it is never the same as another
    missing: tuple[str, ...] = ()  # what a part of it should match and does not
    vendor: str = ""
    model: str = ""
    attributes: Mapping[str, str] = {}
    # What a container gets. None: every device node of `states` as a node, every other file as a mount.
    nodes: tuple[DeviceNode, ...] | None = None
    mounts: tuple[Mount, ...] = ()
    slots: tuple[str, ...] = ()  # as `Device.slots`


class Finder(Protocol):
    """How an entry finds its devices. Its fields are the options of the entry."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names that `Found.names` has."""
        ...

    def faults(self) -> Iterator[str]:
        """What is wrong with the options and types cannot say: "vendor: '80866' is not..."."""
        ...

    def find(self, look: Look) -> Iterable[Found]:
        """All that is there now, in a stable order."""
        ...

    def health(self, look: Look, found: Found) -> Cause | None:
        """What is wrong beside missing or changed files. Asked at each scan and at each probe."""
        ...

    def patterns(self) -> Iterable[str]:
        """Paths and globs whose directories change when a device comes or goes."""
        ...


class Look:
    """One look at the host. Remembers, for its short life, where links lead: devices of a kind are near each other."""

    def __init__(self, root: HostRoot) -> None:
        self.root = root
        self.problems: list[str] = []  # what people should know of this look
        self._named: set[str] = set()
        self._reals: dict[str, str | None] = {"/": "/"}
        self._places: dict[str, tuple[int | None, str]] = {}

    def name(self, path: str, why: str) -> None:
        """Says what is wrong with a file; of each, the first thing that is."""
        if path not in self._named:
            self._named.add(path)
            self.problems.append(f"{printable(path)} {why}")

    def failed(self, path: str, error: OSError) -> None:
        """What cannot be read is not the same as nothing: a device may be there."""
        self.name(path, f"cannot be read: {error.strerror or error}")

    def matches(self, pattern: str) -> list[str]:
        """The paths that a pattern stands for, no more of them than a kubelet can use."""
        if not WILDCARD.search(pattern):
            return [pattern]
        try:
            return self._some(self.root.glob(pattern, self.failed), pattern)
        except OverflowError as error:
            self.problems.append(f"{error}, so it finds nothing. Write a narrower one")
            return []

    def names(self, directory: str) -> list[str]:
        """What is in a directory of sysfs; nothing where the kernel does not have it."""
        real = self.real(directory)
        return self._some(self.root.names_at(real, self.failed), directory) if real is not None else []

    def read(self, path: str) -> str:
        """A small file of sysfs; empty where there is none, or where it cannot be read."""
        above, _, name = path.rpartition("/")
        directory = self._reals.get(above) or self.real(above or "/")
        if directory is None:
            return ""
        try:
            content = files.read_once(self.root.outside(f"{directory}/{name}"))
        except OSError as error:
            if error.errno == errno.ELOOP:
                return self.root.read(path, failed=self.failed) or ""
            if not is_gone(error):
                self.failed(path, error)
            return ""
        return content.decode(errors="replace").strip()

    def has(self, directory: str, name: str) -> bool:
        real = self.real(directory)
        return real is not None and self.root.stat(f"{real}/{name}", self.failed) is not None

    def real(self, path: str, *, link: bool = False) -> str | None:
        """The path without links, or None where nothing is. `link`: it is most likely one itself."""
        if path not in self._reals:
            above = None if link else self._reals.get(parent(path))
            inside = f"{above.rstrip('/')}/{base(path)}" if above is not None else ""
            found = self._inside(inside) if inside else self.root.real(path, self.failed)
            self._reals[path] = found
            if found is not None:
                self._reals[found] = found
                while (found := parent(found)) not in self._reals:  # nor has a directory above it links
                    self._reals[found] = found
        return self._reals[path]

    def see(self, path: str) -> PathState:
        above, _, name = path.rpartition("/")
        directory = self._reals.get(above)
        real = f"{directory}/{name}" if directory and name not in _UP else self.real(path)
        state = self.root.stat(real, self.failed) if real is not None else None
        if state is not None and stat.S_ISLNK(state.st_mode):
            real = self.real(path)
            state = self.root.stat(real, self.failed) if real is not None else None
        if real is None or state is None:
            return PathState(path)
        mode = state.st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            number = f"{os.major(state.st_rdev)}:{os.minor(state.st_rdev)}"
            return PathState(path, real, Kind.DEVICE.value, f"{'char' if stat.S_ISCHR(mode) else 'block'} {number}")
        return PathState(path, real, _KINDS.get(stat.S_IFMT(mode), "pipe"))

    def place(self, found: Found) -> tuple[tuple[int, ...], str]:
        """The NUMA nodes and the PCI address that sysfs knows for a device."""
        numbers = (state.number.split(" ") for state in found.states if state.number)
        wheres = [found.where] if found.where else [f"/sys/dev/{kind}/{number}/device" for kind, number in numbers]
        places = [self._place(self.real(where) or "") for where in wheres]
        nodes = {node for node, _ in places if node is not None}
        return tuple(sorted(nodes)), next((pci for _, pci in places if pci), "")

    def _place(self, at: str) -> tuple[int | None, str]:
        if bus := _USB_BUS.search(at):  # nothing on it knows its node; the controller above it does
            at = at[: bus.start()]
        if not at.startswith("/sys/devices/") or at.count("/") > _STEPS_MAX:
            return None, ""
        if at not in self._places:
            name = base(at)
            # -1: the firmware does not say.
            text, pci = self.read(f"{at}/numa_node"), name if PCI.fullmatch(name) else ""
            node, above = (int(text) if _NUMA.fullmatch(text) else None, "") if text else self._place(parent(at))
            self._places[at] = node, pci or above
        return self._places[at]

    def _some(self, found: list[str], where: str) -> list[str]:
        if len(found) > MATCHES_MAX:
            what = (
                f"{where} has {len(found):,} matches" if WILDCARD.search(where) else f"{where} has {len(found):,} files"
            )
            self.problems.append(f"{what}, and only the first {MATCHES_MAX:,} are used. Write a narrower pattern")
        return found[:MATCHES_MAX]

    def _inside(self, here: str) -> str | None:
        """The same in a directory without links."""
        if base(here) in _UP:
            return self.root.real(here, self.failed)
        state = self.root.stat(here, self.failed)
        is_link = state is not None and stat.S_ISLNK(state.st_mode)
        return None if state is None else self.root.real(here, self.failed) if is_link else here


_KINDS = {stat.S_IFREG: Kind.FILE.value, stat.S_IFDIR: Kind.DIRECTORY.value, stat.S_IFSOCK: Kind.SOCKET.value}


def base(path: str) -> str:
    return path.rpartition("/")[2]


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
