"""What the kubelet's own checkpoint proves where pod-resources cannot be asked: that an id is free.

The file lies in the plugin directory. The kubelet writes it after each list that it received and each allocation; ids
of pods that ended stay in it until the next allocation. So an id that it names may be free, and one that it does not
name is. Its checksum is not checked: it covers Go's rendering of private types, and the file is replaced as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from fairlead.kit import files
from fairlead.model.names import ResourceName, SlotId

NAME = "kubelet_internal_checkpoint"
MAX_BYTES = 64 * 2**20  # a list may have 4 MiB, and a node a few of them


class Checkpoint(Struct, frozen=True):
    listed: Mapping[ResourceName, frozenset[SlotId]]  # healthy ids, of each resource that the kubelet knows
    held: Mapping[ResourceName, frozenset[SlotId]]

    def is_free(self, resource: ResourceName, slot: SlotId) -> bool:
        """Whether no pod holds the id, and none can get it: the kubelet has our list in which it is not healthy."""
        listed = self.listed.get(resource)
        return listed is not None and slot not in listed and slot not in self.held.get(resource, frozenset())


class ContainerEntry(Struct, frozen=True):
    """What the kubelet gave to a container, and the plugin's answer as it keeps it."""

    pod_uid: str
    container: str
    resource: ResourceName
    slots: frozenset[SlotId]
    answer: bytes = b""


class _Entry(Struct, rename="pascal"):
    resource_name: str
    container_name: str = ""
    pod_uid: str = msgspec.field(name="PodUID", default="")
    alloc_resp: bytes | None = None
    device_ids: dict[str, list[str] | None] | None = msgspec.field(name="DeviceIDs", default=None)


class _Data(Struct, rename="pascal"):
    pod_device_entries: list[_Entry] | None
    registered_devices: dict[str, list[str] | None] | None


class _File(Struct, rename="pascal"):
    data: _Data


def is_written(directory: Path) -> bool:
    """Whether there is a file at all. One that cannot be read may name any pod."""
    return os.path.lexists(directory / NAME)


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """Blocks on the file. None: there is none, or it is not as expected."""
    try:
        return load_checkpoint(directory)
    except (OSError, ValueError):
        return None


def load_checkpoint(directory: Path) -> Checkpoint:
    """The same. OSError or ValueError with what is wrong with the file."""
    data = _read(directory)
    held: dict[ResourceName, set[SlotId]] = {}
    for entry in data.pod_device_entries or ():
        mine = held.setdefault(ResourceName(entry.resource_name), set())
        mine.update(SlotId(slot) for ids in (entry.device_ids or {}).values() for slot in ids or ())
    listed = {
        ResourceName(name): frozenset(map(SlotId, ids or ())) for name, ids in (data.registered_devices or {}).items()
    }
    return Checkpoint(listed, {name: frozenset(slots) for name, slots in held.items()})


def load_entries(directory: Path, most: int) -> list[ContainerEntry]:
    """The containers, `most` at the most. Blocks on the file; OSError or ValueError with what is wrong with it."""
    return [
        ContainerEntry(
            entry.pod_uid,
            entry.container_name,
            ResourceName(entry.resource_name),
            frozenset(SlotId(slot) for ids in (entry.device_ids or {}).values() for slot in ids or ()),
            entry.alloc_resp or b"",
        )
        for entry in (_read(directory).pod_device_entries or ())[:most]
    ]


def _read(directory: Path) -> _Data:
    return msgspec.json.decode(files.read_bytes(directory / NAME, MAX_BYTES), type=_File).data
