"""Finds what stands at the configured paths, and says whether it still does. Blocking: runs on the owner thread."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from fairlead.backends.paths.host import HostRoot
from fairlead.backends.paths.spec import WILDCARD, Entry, Kind
from fairlead.backends.pattern import fill
from fairlead.model.device import Device, DeviceNode
from fairlead.model.edits import Mount
from fairlead.model.health import Cause, CauseKind
from fairlead.model.names import SLOT_ID_MAX, DeviceId
from fairlead.model.text import encodable, is_encodable

_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_UNFIT = re.compile(r"[^A-Za-z0-9._:-]+")
_HASH_LENGTH = 6


class Spot(Struct, frozen=True):
    """A path and what stood there. A missing one has no kind."""

    path: str
    real: str = ""
    kind: str = ""
    number: str = ""  # "char 4:64"; empty for what is no device


class Found(Struct, frozen=True):
    device: Device
    spots: tuple[Spot, ...]
    mounts: tuple[Mount, ...]
    fault: Cause | None  # what was wrong with the spots when they were seen


class Scanner:
    """Keeps, for its life, the id that a path was given first."""

    def __init__(self, entries: Sequence[Entry], root: HostRoot) -> None:
        self._entries = entries
        self._root = root
        self._ids: dict[str, DeviceId] = {}
        self._unclear = [entry for entry in entries if _is_unclear(entry, entries)]

    def scan(self) -> tuple[Found, ...]:
        found: list[Found] = []
        taken: set[str] = set()  # one thing under two names is offered once
        for entry in self._entries:
            if entry.group:
                found += self._group(entry)
                continue
            for spot in self._singles(entry):
                key = spot.real or spot.path
                if key not in taken:
                    taken.add(key)
                    found.append(self._found(entry, (spot,), spot.path, () if spot.kind else (spot.path,)))
        return tuple(found)

    def check(self, found: Found) -> Cause | None:
        """Whether all that was seen still stands as it was."""
        now = tuple(self._see(spot.path) for spot in found.spots)
        if found.fault is not None and now == found.spots:
            return found.fault
        for was, here in zip(found.spots, now, strict=True):
            if not here.kind:
                return _missing(here.path)
            if was.kind and here != was:
                return Cause("changed-path", CauseKind.TRANSIENT, f"{here.path} was {_say(was)} and is {_say(here)}")
        # What was missing is back: the next scan lists it with all it has.
        return None

    def directories(self) -> set[str]:
        """Where changes show: the directories of all paths, or the nearest that exist, as this process sees them."""
        patterns = {pattern for entry in self._entries for pattern in entry.paths}
        paths = patterns | {path for pattern in patterns for path in self._matches(pattern)}
        paths |= {real for path in paths if (real := self._root.real(path)) is not None}
        return {self._nearest(path) for path in paths}

    def _nearest(self, path: str) -> str:
        parent = _parent(path)
        while WILDCARD.search(parent) or self._root.real(parent) is None:
            parent = _parent(parent)
        return self._root.outside(self._root.real(parent) or "/")

    def _matches(self, pattern: str) -> list[str]:
        return self._root.glob(pattern) if WILDCARD.search(pattern) else [pattern]

    def _look(self, pattern: str, entry: Entry) -> Iterator[Spot]:
        """What a pattern stands for: with wildcards what fits, without them the path, whatever is there."""
        for path in self._matches(pattern):
            spot = self._see(path)
            if spot.kind in entry.allow or not WILDCARD.search(pattern):
                yield spot

    def _singles(self, entry: Entry) -> Iterator[Spot]:
        for pattern in entry.paths:
            yield from (spot for spot in self._look(pattern, entry) if spot.kind or not entry.optional)

    def _group(self, entry: Entry) -> Iterator[Found]:
        looks = {pattern: tuple(self._look(pattern, entry)) for pattern in entry.paths}
        missing = tuple(pattern for pattern, spots in looks.items() if not any(spot.kind for spot in spots))
        if not (missing and entry.optional):
            spots = tuple(dict.fromkeys(spot for look in looks.values() for spot in look))
            yield self._found(entry, spots, entry.name, missing)

    def _see(self, path: str) -> Spot:
        real = self._root.real(path)
        state = self._root.stat(real) if real is not None else None
        if real is None or state is None:
            return Spot(path)
        number = f"{os.major(state.st_rdev)}:{os.minor(state.st_rdev)}"
        for test, kind, text in (
            (stat.S_ISCHR, Kind.DEVICE.value, f"char {number}"),
            (stat.S_ISBLK, Kind.DEVICE.value, f"block {number}"),
            (stat.S_ISREG, Kind.FILE.value, ""),
            (stat.S_ISDIR, Kind.DIRECTORY.value, ""),
            (stat.S_ISSOCK, Kind.SOCKET.value, ""),
        ):
            if test(state.st_mode):
                return Spot(path, real, kind, text)
        return Spot(path, real, "pipe")

    def _found(self, entry: Entry, spots: tuple[Spot, ...], origin: str, missing: tuple[str, ...]) -> Found:
        nodes, mounts = [], [Mount(m.host, m.container or m.host, m.read_only) for m in entry.mounts]
        for spot in spots:
            if spot.kind in {"", Kind.DEVICE}:
                real = spot.real or spot.path
                inside = spot.path if real != spot.path else ""
                nodes.append(DeviceNode(encodable(real), encodable(inside), entry.permissions))
            else:
                # Only a device can be handed over as one; the rest is mounted.
                writable = "w" in entry.permissions
                mounts.append(Mount(encodable(spot.real), encodable(spot.path), read_only=not writable))
        numa, pci = self._place(spots)
        device = Device(
            id=self._id(entry, origin),
            index=encodable(_base(origin)),
            vendor=entry.vendor,
            model=entry.model,
            pci_address=pci,
            numa_nodes=numa,
            nodes=tuple(nodes),
            attributes=dict(entry.attributes),
        )
        return Found(device, spots, tuple(mounts), _fault(entry, spots, missing))

    def _place(self, spots: tuple[Spot, ...]) -> tuple[tuple[int, ...], str]:
        """The NUMA nodes and the PCI address that sysfs knows for the devices."""
        nodes: set[int] = set()
        pci = ""
        for spot in spots:
            if not spot.number:
                continue
            kind, _, number = spot.number.partition(" ")
            where = self._root.real(f"/sys/dev/{kind}/{number}/device") or ""
            # A USB interface knows no node; the controller above it does.
            while where.startswith("/sys/devices/"):
                pci = pci or (_base(where) if _PCI.fullmatch(_base(where)) else "")
                text = self._root.read(f"{where}/numa_node")
                if text:
                    nodes |= {int(text)} if text.isdigit() else set()  # -1: the firmware does not say
                    break
                where = _parent(where)
        return tuple(sorted(nodes)), pci

    def _id(self, entry: Entry, origin: str) -> DeviceId:
        if origin not in self._ids:
            parent = _base(_parent(origin))
            name = _UNFIT.sub("-", fill(entry.name, {"name": _base(origin), "dir": parent}, "name"))
            digest = hashlib.blake2b(origin.encode(errors="surrogateescape"), digest_size=_HASH_LENGTH // 2).hexdigest()
            unclear = any(entry is one for one in self._unclear)
            if unclear or len(name) > SLOT_ID_MAX or name in self._ids.values():
                name = f"{name[: SLOT_ID_MAX - _HASH_LENGTH - 1]}-{digest}"
            self._ids[origin] = DeviceId(name)
        return self._ids[origin]


def _is_unclear(entry: Entry, entries: Sequence[Entry]) -> bool:
    """Whether two paths in different places may end up with one name. Decided by the patterns alone.

    What happens to be there at the moment must not matter: after a restart the same path must have the same id.
    """
    if entry.group or "{dir}" in entry.name:
        return False
    if any(WILDCARD.search(_parent(pattern)) for pattern in entry.paths):
        return True
    others = [pattern for one in entries if not one.group and one.name == entry.name for pattern in one.paths]
    return any(
        _parent(one) != _parent(other) and _may_meet(_base(one), _base(other))
        for one in entry.paths
        for other in others
    )


def _may_meet(one: str, other: str) -> bool:
    """Whether two globs may match the same name; rather yes than no."""
    heads = WILDCARD.split(one)[0], WILDCARD.split(other)[0]
    if heads[0] == one and heads[1] == other:
        return one == other
    if heads[0] == one or heads[1] == other:
        return fnmatchcase(one, other) or fnmatchcase(other, one)
    return heads[0].startswith(heads[1]) or heads[1].startswith(heads[0])


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _fault(entry: Entry, spots: tuple[Spot, ...], missing: tuple[str, ...]) -> Cause | None:
    if missing:
        return _missing(missing[0])
    for spot in spots:
        if not is_encodable(spot.path + spot.real):
            why = "is not UTF-8, and the kubelet takes no other path. Rename it"
            return Cause("odd-path", CauseKind.TRANSIENT, f"{encodable(spot.real or spot.path)} {why}")
        if spot.kind not in entry.allow:
            wanted = " or ".join(entry.allow)
            return Cause("wrong-path", CauseKind.TRANSIENT, f"{spot.path} is {_say(spot)}, not a {wanted}")
    return None


def _missing(path: str) -> Cause:
    return Cause("missing-path", CauseKind.TRANSIENT, f"{path} is missing")


def _say(spot: Spot) -> str:
    what = f"{spot.kind} {spot.number}" if spot.number else spot.kind
    return f"a {what}" if spot.real == spot.path else f"a {what} at {spot.real}"
