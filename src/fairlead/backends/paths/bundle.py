"""Devices made of several files, by the rules and with the ids of squat's generic-device-plugin.

The globs of a group are put together match by match; all USB devices of a group are one device. The ids of slots are
hashes of the host's paths: pods that run already hold such ids.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from fairlead.backends.paths import usb
from fairlead.backends.paths.found import Found, Kind, Look, PathState, base
from fairlead.backends.paths.goglob import compile_part, expand
from fairlead.kit.decoding import doc
from fairlead.kit.text import encodable
from fairlead.model.device import DeviceNode
from fairlead.model.edits import Mount
from fairlead.model.health import Cause, CauseKind

COUNT_MAX = 2**16  # of slots that a device is shared as
_PERMISSIONS = re.compile(r"(?!.*(.).*\1)[rwm]+")


class PathType(StrEnum):
    DEVICE = "Device"
    MOUNT = "Mount"


class BundlePath(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    path: Annotated[str, doc("A glob, as Go has them.")]
    mount_path: Annotated[str, doc("In the container; with a '/' at the end, a directory for the file.")] = ""
    permissions: Annotated[str, doc("Of the device node.")] = "mrw"
    read_only: Annotated[bool, doc("Of a mount.")] = False
    type: Annotated[PathType, doc("What the container gets.")] = PathType.DEVICE
    limit: Annotated[int, doc("How often a match is used while others of the group have more matches.")] = 1
    optional: Annotated[bool, doc("Whether the group does without it.")] = False

    def faults(self) -> Iterator[str]:
        if not self.path.startswith("/"):
            yield f"path: {self.path!r:.80} is not an absolute path"
        if self.mount_path and not self.mount_path.startswith("/"):
            yield f"mountPath: {self.mount_path!r:.80} is not an absolute path"
        for key, text in (("path", self.path), ("mountPath", self.mount_path)):
            if ".." in text.split("/") or "\x00" in text:
                yield f"{key}: {text!r:.80} holds '..' or a zero byte; write the path it leads to"
        if not _PERMISSIONS.fullmatch(self.permissions):
            yield f"permissions: {self.permissions!r:.40} is not made of r, w and m"
        if not 1 <= self.limit <= COUNT_MAX:
            yield f"limit: {self.limit} is not a number from 1 to {COUNT_MAX}"
        try:
            for part in self.path.split("/"):
                compile_part(part)
        except ValueError as error:
            yield f"path: {self.path!r:.80} is no pattern: {error}"

    def inside(self, path: str) -> str:
        return self.mount_path + base(path) if self.mount_path.endswith("/") else self.mount_path or path


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    paths: Annotated[tuple[BundlePath, ...], doc("Globs whose matches are put together.")] = ()
    usb: Annotated[tuple[usb.UsbSpec, ...], doc("USB devices, all of which are one device.")] = ()
    count: Annotated[int, doc("How many slots each device has.")] = 1

    def faults(self) -> Iterator[str]:
        if self.paths and self.usb:
            yield "usb: beside paths. Give one of them; a group has files or USB devices"
        if not 1 <= self.count <= COUNT_MAX:
            yield f"count: {self.count} is not a number from 1 to {COUNT_MAX}"
        yield from (f"paths[{place}].{fault}" for place, part in enumerate(self.paths) for fault in part.faults())
        yield from (f"usb[{place}].{fault}" for place, part in enumerate(self.usb) for fault in part.faults())


class Bundle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finder. All of its devices belong together: of two groups with one file, the later one has it."""

    name: Annotated[str, doc("What ids are told apart by; not shown.")]
    groups: Annotated[tuple[Group, ...], doc("Where its devices come from.")]

    @property
    def fields(self) -> tuple[str, ...]:
        return ("name",)

    def faults(self) -> Iterator[str]:
        for place, group in enumerate(self.groups):
            yield from (f"groups[{place}].{fault}" for fault in group.faults())

    def patterns(self) -> Iterable[str]:
        for group in self.groups:
            yield from ([usb.NODES] if group.usb else [part.path for part in group.paths])

    def find(self, look: Look) -> Iterable[Found]:
        found: dict[str, Found] = {}
        for number, group in enumerate(self.groups):
            for one in self._of_usb(look, group, number) if group.usb else self._of_paths(look, group):
                earlier = found.pop(one.identity, None)
                slots = dict.fromkeys((*one.slots, *(earlier.slots if earlier else ())))
                found[one.identity] = msgspec.structs.replace(one, slots=tuple(slots))
        return found.values()

    def health(self, look: Look, found: Found) -> Cause | None:  # noqa: ARG002 - its files say all
        """A runtime takes device nodes, and directories of them, for devices, and nothing else."""
        given = {node.path for node in found.nodes or ()}
        for state in found.states:
            if state.kind not in {"", Kind.DEVICE, Kind.DIRECTORY} and state.path in given:
                text = f"{state.path} is a {state.kind}, not a device. Give it type: Mount"
                return Cause("wrong-path", CauseKind.TRANSIENT, text)
        return None

    def _of_paths(self, look: Look, group: Group) -> Iterator[Found]:
        matches = [(part, expand(look, part.path)) for part in group.paths]
        matches = [(part, paths) for part, paths in matches if paths or not part.optional]
        if not matches:
            return
        most, fewest = max(len(paths) for _, paths in matches), min(len(paths) * part.limit for part, paths in matches)
        for number in range(min(most, fewest)):
            files = [(part, paths[number % len(paths)]) for part, paths in matches]
            nodes = [
                DeviceNode(encodable(path), encodable(part.inside(path)), part.permissions)
                for part, path in files
                if part.type is PathType.DEVICE
            ]
            mounts = [
                Mount(encodable(path), encodable(part.inside(path)), part.read_only)
                for part, path in files
                if part.type is PathType.MOUNT
            ]
            yield self._found(look, [path for _, path in files], group.count, nodes, mounts)

    def _of_usb(self, look: Look, group: Group, number: int) -> Iterator[Found]:
        here = usb.list_usb(look)
        paths = [device.node for spec in group.usb for device in here if spec.takes(device)]
        if paths:
            nodes = [DeviceNode(path, path) for path in dict.fromkeys(paths)]
            yield self._found(look, paths, group.count, nodes, [], f"usb{number}")

    def _found(
        self,
        look: Look,
        paths: Sequence[str],
        count: int,
        nodes: Sequence[DeviceNode],
        mounts: Sequence[Mount],
        name: str = "",
    ) -> Found:
        """`name`: what it stays, whatever its nodes are called; a USB device has another node after each replug."""
        states: tuple[PathState, ...] = tuple(look.see(path) for path in dict.fromkeys(paths))
        return Found(
            identity=f"{self.name}: {name or ' '.join(paths)}",
            names={"name": name or base(paths[0])},
            states=states,
            index=name or base(paths[0]),
            nodes=tuple(nodes),
            mounts=tuple(mounts),
            slots=slot_ids(paths, count),
        )


def slot_ids(paths: Sequence[str], count: int) -> tuple[str, ...]:
    """As squat's plugin makes them: SHA-1 of the copy's number and of all paths."""
    whole = "".join(paths).encode(errors="surrogateescape")
    return tuple(hashlib.sha1(b"%d%s" % (copy, whole), usedforsecurity=False).hexdigest() for copy in range(count))
