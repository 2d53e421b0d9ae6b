"""The device manager's checkpoint file: its JSON, its checksum, and how it reaches the disk.

Owns the format only. What goes in and what a restart makes of it is decided elsewhere.
"""

import base64
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAME = "kubelet_internal_checkpoint"


class Corrupt(Exception):
    """The file cannot be trusted."""


@dataclass(frozen=True, slots=True)
class Entry:
    uid: str
    container: str
    resource: str
    by_node: Mapping[int, Sequence[str]]
    answer: bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    # None and empty differ: they are written and summed differently.
    entries: Sequence[Entry] | None = None
    registered: Mapping[str, Sequence[str] | None] = field(default_factory=dict)


def checksum(data: Checkpoint) -> int:
    """FNV-1a, 32 bit, over the text a Go deep printer makes of the structure."""
    value = 0x811C9DC5
    for byte in _render(data).encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def encode(data: Checkpoint) -> str:
    entries = None if data.entries is None else [_entry_to_json(entry) for entry in data.entries]
    registered = {name: data.registered[name] for name in sorted(data.registered)}
    content = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
    return _compact({"Data": content, "Checksum": checksum(data)})


def decode(text: str) -> Checkpoint:
    """The content, or Corrupt when the JSON or the checksum is wrong."""
    try:
        document = json.loads(text)
        content = document["Data"]
        entries = content["PodDeviceEntries"]
        data = Checkpoint(
            entries=None if entries is None else [_entry_from_json(entry) for entry in entries],
            registered=dict(content["RegisteredDevices"] or {}),
        )
        stored = document["Checksum"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"the checkpoint is not readable: {error}") from error
    if stored != (actual := checksum(data)):
        raise Corrupt(f"the checkpoint's checksum is {stored}, its content sums to {actual}")
    return data


def write(directory: Path, data: Checkpoint) -> None:
    """Write atomically: a hidden temporary file in the same directory, synced, then renamed."""
    handle, temporary = tempfile.mkstemp(prefix=".", dir=directory)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(encode(data))
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(directory / NAME)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(directory: Path) -> Checkpoint | None:
    """What the file holds, None when there is none. Raises Corrupt."""
    try:
        text = (directory / NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Corrupt(f"the checkpoint is not text: {error}") from error
    return decode(text)


def _render(data: Checkpoint) -> str:
    entries = "<nil>" if data.entries is None else "[" + " ".join(map(_render_entry, data.entries)) + "]"
    registered = " ".join(
        f"{name}:{_render_ids(data.registered[name])}" for name in sorted(data.registered, key=str.encode)
    )
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} "
        f"RegisteredDevices:(map[string][]string)map[{registered}]}}"
    )


def _render_entry(entry: Entry) -> str:
    by_node = " ".join(f"{node}:{_render_ids(entry.by_node[node])}" for node in sorted(entry.by_node))
    answer = " ".join(map(str, entry.answer))
    return (
        f"{{PodUID:(string){entry.uid} ContainerName:(string){entry.container} "
        f"ResourceName:(string){entry.resource} DeviceIDs:(checkpoint.DevicesPerNUMA)map[{by_node}] "
        f"AllocResp:([]uint8)[{answer}]}}"
    )


def _render_ids(ids: Sequence[str] | None) -> str:
    return "<nil>" if ids is None else "[" + " ".join(ids) + "]"


def _entry_to_json(entry: Entry) -> dict[str, Any]:
    # Go sorts the keys of a map as text, so "10" stands before "2" in the file, though not in the checksum.
    by_node = dict(sorted((str(node), list(ids)) for node, ids in entry.by_node.items()))
    return {
        "PodUID": entry.uid,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": by_node,
        "AllocResp": base64.b64encode(entry.answer).decode(),
    }


def _entry_from_json(entry: dict[str, Any]) -> Entry:
    return Entry(
        uid=entry["PodUID"],
        container=entry["ContainerName"],
        resource=entry["ResourceName"],
        by_node={int(node): tuple(ids) for node, ids in entry["DeviceIDs"].items()},
        answer=base64.b64decode(entry["AllocResp"] or "", validate=True),
    )


def _compact(document: dict[str, Any]) -> str:
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    # Go's encoder escapes these for the sake of HTML.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
