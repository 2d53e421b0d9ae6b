"""Makes devices of what the finders of all entries see, and says whether they are still so. Blocking: runs on the
owner thread.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from fairlead.backends.paths.found import WILDCARD, Found, Kind, Look, PathState, parent
from fairlead.backends.paths.globs import Globs
from fairlead.backends.paths.spec import Entry, finder_of
from fairlead.kit.hostroot import HostRoot
from fairlead.kit.pattern import fill
from fairlead.kit.text import encodable, is_encodable
from fairlead.model.device import Device, DeviceNode
from fairlead.model.edits import Mount
from fairlead.model.health import Cause, CauseKind
from fairlead.model.names import SLOT_ID_MAX, DeviceId

_UNFIT = re.compile(r"[^A-Za-z0-9._:-]+")
_HASH_LENGTH = 6


class FoundDevice(Struct, frozen=True):
    device: Device
    found: Found
    entry: int  # the position of the entry that it belongs to
    mounts: tuple[Mount, ...]
    fault: Cause | None  # what was wrong with it when it was seen


class Scan(Struct, frozen=True):
    devices: tuple[FoundDevice, ...] = ()
    problems: tuple[str, ...] = ()


class Scanner:
    """Keeps, for its life, the id that an identity was given first."""

    def __init__(self, entries: Sequence[Entry], root: HostRoot) -> None:
        self._entries = entries
        self._finders = tuple(finder_of(entry) or Globs(entry, entries) for entry in entries)
        self._root = root
        self._ids: dict[str, DeviceId] = {}
        self._owners: dict[str, str] = {}  # the position of what has an identity that several devices say they have
        self._paths: set[str] = set()  # of the last scan
        self._stood: dict[PathState, tuple[int, ...]] = {}  # the file at a path that the last check found as it was

    def scan(self) -> Scan:
        look = Look(self._root)
        seen: list[tuple[int, Found]] = []
        taken: set[str] = set()  # one thing under two names is offered once
        for number, finder in enumerate(self._finders):
            for found in finder.find(look):
                if (not found.key or found.key not in taken) and (found.states or not self._entries[number].optional):
                    taken.add(found.key)
                    seen.append((number, found))
        here = self._choose_owners([found for _, found in seen])
        devices = [self._device(number, self._distinct(found, here, look), look) for number, found in seen]
        self._paths = {state.path for device in devices for state in device.found.states}
        return Scan(tuple(devices), tuple(dict.fromkeys(look.problems)))

    def check(self, seen: Mapping[DeviceId, FoundDevice]) -> dict[DeviceId, Cause | None]:
        """Of each device, what does not stand as it was seen."""
        look = Look(self._root)
        return {device: self._check(found, look) for device, found in seen.items()}

    def _check(self, seen: FoundDevice, look: Look) -> Cause | None:
        was = seen.found.states
        now = tuple(self._now(state, look) for state in was)
        cause = _fault(self._entries[seen.entry], seen.found) if now == was else _change(was, now)
        return cause or self._finders[seen.entry].health(look, seen.found)

    def _now(self, was: PathState, look: Look) -> PathState:
        """Where the same file stands, unchanged since the last check, no link is followed again: a check of many paths
        is most of what an idle daemon does.
        """
        file = self._root.file_at(was.path)
        if file is not None and self._stood.get(was) == file:
            return was
        now = look.see(was.path)
        if file is not None and now == was and self._root.is_inside(file, now.real):
            self._stood[was] = file
        else:
            self._stood.pop(was, None)
        return now

    def directories(self) -> set[str]:
        """Where changes show: the directories of all paths, or the nearest that exist, as this process sees them."""
        look = Look(self._root)
        patterns = {pattern for finder in self._finders for pattern in finder.patterns()}
        paths = patterns | self._paths | {path for pattern in patterns for path in look.matches(pattern)}
        paths |= {real for path in paths if (real := look.real(path)) is not None}
        return {self._root.outside(_nearest(above, look)) for above in {parent(path) for path in paths}}

    def _choose_owners(self, seen: Sequence[Found]) -> Mapping[str, set[str]]:
        """The positions of each identity. The first of them has it, unless another one had it before."""
        here: dict[str, set[str]] = {}
        for found in seen:
            here.setdefault(found.identity, set()).add(found.position)
        for identity, positions in here.items():
            free = {position for position in positions if f"{identity} at {position}" not in self._ids}
            if free and ("" in free or self._owners.get(identity) not in free):
                self._owners[identity] = min(free)
        return here

    def _distinct(self, found: Found, here: Mapping[str, set[str]], look: Look) -> Found:
        """Of two devices with one serial number, the second is known by its position too, as long as it stays there."""
        owner = self._owners.get(found.identity, found.position)
        if found.position in {"", owner}:
            return found
        if owner in here[found.identity]:
            why = f"{found.position} has the serial number of {owner}, {found.identity}: it is known by its "
            why += "position, and plugged in elsewhere it is another device"
            twice = f"{found.position} is found by two entries. Two pods may get it: narrow one of them"
            look.problems.append(why if owner else twice)
        return replace(found, identity=f"{found.identity} at {found.position}", suffixed=True)

    def _device(self, position: int, found: Found, look: Look) -> FoundDevice:
        entry = self._entries[position]
        nodes, mounts = list(found.nodes or ()), [*_mounts_of(entry), *found.mounts]
        for state in found.states if found.nodes is None else ():
            if state.kind in {"", Kind.DEVICE}:
                real = state.real or state.path
                inside = state.path if real != state.path else ""
                nodes.append(DeviceNode(encodable(real), encodable(inside), entry.permissions))
            else:
                # Only a device can be handed over as one; the rest is mounted.
                writable = "w" in entry.permissions
                mounts.append(Mount(encodable(state.real), encodable(state.path), read_only=not writable))
        numa, pci = look.place(found)
        device = Device(
            id=self._id(entry, found),
            index=encodable(found.index),
            vendor=entry.vendor or found.vendor,
            model=entry.model or found.model,
            pci_address=pci,
            numa_nodes=numa,
            nodes=tuple(nodes),
            attributes={**found.attributes, **entry.attributes},
            slots=found.slots,
        )
        fault = _fault(entry, found) or self._finders[position].health(look, found)
        return FoundDevice(device, found, position, tuple(mounts), fault)

    def _id(self, entry: Entry, found: Found) -> DeviceId:
        origin = found.identity
        if origin not in self._ids:
            fitting = {key: _UNFIT.sub("-", text) for key, text in found.names.items()}
            filled = fill(entry.name, fitting, "name")
            name, lossy = _UNFIT.sub("-", filled), filled != fill(entry.name, found.names, "name")
            digest = hashlib.blake2b(origin.encode(errors="surrogateescape"), digest_size=_HASH_LENGTH // 2).hexdigest()
            # Another identity may have the same name, now or after a restart: what is there must not decide the id.
            unclear = found.suffixed or lossy or not name or (finder_of(entry) and "{name}" not in entry.name)
            if unclear or len(name) > SLOT_ID_MAX or name in self._ids.values():
                name = f"{name[: SLOT_ID_MAX - _HASH_LENGTH - 1]}-{digest}"
            self._ids[origin] = DeviceId(name)
        return self._ids[origin]


def _nearest(directory: str, look: Look) -> str:
    """The directory that a change of this one shows in first."""
    while WILDCARD.search(directory) or (real := look.real(directory)) is None:
        directory = parent(directory)
    return real


def _mounts_of(entry: Entry) -> list[Mount]:
    return [Mount(mount.host, mount.container or mount.host, mount.read_only) for mount in entry.mounts]


def _fault(entry: Entry, found: Found) -> Cause | None:
    if found.missing:
        return _missing(found.missing[0])
    for state in found.states:
        if not is_encodable(state.path + state.real):
            why = "is not UTF-8, and the kubelet takes no other path. Rename it"
            return Cause("odd-path", CauseKind.TRANSIENT, f"{encodable(state.real or state.path)} {why}")
        if not state.kind:
            return _missing(state.path)
        if state.kind not in entry.allow:
            wanted = " or ".join(entry.allow)
            return Cause("wrong-path", CauseKind.TRANSIENT, f"{state.path} is {_say(state)}, not a {wanted}")
    return None


def _change(was: Sequence[PathState], now: Sequence[PathState]) -> Cause | None:
    for before, here in zip(was, now, strict=True):
        if not here.kind:
            return _missing(here.path)
        if before.kind and here != before:
            text = f"{here.path} was {_say(before)} and is {_say(here)}"
            return Cause("changed-path", CauseKind.TRANSIENT, text)
    # What was missing is back: the next scan lists it with all it has.
    return None


def _missing(path: str) -> Cause:
    return Cause("missing-path", CauseKind.TRANSIENT, f"{path} is missing")


def _say(state: PathState) -> str:
    what = f"{state.kind} {state.number}" if state.number else state.kind
    return f"a {what}" if state.real == state.path else f"a {what} at {state.real}"
