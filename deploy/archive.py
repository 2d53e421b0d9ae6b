"""An image as an OCI archive on disk: its config, its layers, how large they are, and the files in them.

Reads what an engine wrote, and gives it the name under which a node knows it. Knows no engine.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LARGEST_BYTES = 2**30  # of one file of the archive: more is not an image of ours
GZIP = b"\x1f\x8b"
# containerd's name for an image in an archive, and what others read.
NAME_KEY, TAG_KEY = "io.containerd.image.name", "org.opencontainers.image.ref.name"


class BadArchive(Exception):
    """The archive is not one image."""


@dataclass(frozen=True, slots=True)
class Archive:
    config: Mapping[str, Any]  # the whole of it; how to run it is under "config"
    layers: tuple[bytes, ...]  # each a tar, unpacked
    packed_bytes: int  # of the layers, as a registry holds them

    @property
    def run(self) -> Mapping[str, Any]:
        told: Mapping[str, Any] = self.config["config"]
        return told

    @property
    def unpacked_bytes(self) -> int:
        return sum(entry.size for layer in self.layers for entry in _entries(layer) if entry.isreg())

    def unpack(self, root: Path) -> None:
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                tar.extractall(root, filter="fully_trusted")  # noqa: S202 - an image of ours; links and modes must stay


def read(path: Path) -> Archive:
    with tarfile.open(path) as tar:
        (manifest,) = json.loads(_content(tar, "index.json"))["manifests"]
        described = json.loads(_blob(tar, manifest))
        packed = [_blob(tar, layer) for layer in described["layers"]]
        config = json.loads(_blob(tar, described["config"]))
    layers = tuple(gzip.decompress(layer) if layer.startswith(GZIP) else layer for layer in packed)
    digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    if digests != config["rootfs"]["diff_ids"]:
        raise BadArchive(f"{path}: its layers are not those that its config names")
    return Archive(config, layers, sum(map(len, packed)))


def set_name(path: Path, name: str) -> None:
    """Writes the name into the archive, where `ctr images import` and `docker load` look for it."""
    beside = path.with_suffix(".named")
    with tarfile.open(path) as old, tarfile.open(beside, "w") as new:
        for entry in old:
            content = old.extractfile(entry)
            entry.mtime = 0  # the same image is the same file
            if entry.name != "index.json" or content is None:
                new.addfile(entry, content)
                continue
            index = json.loads(content.read(LARGEST_BYTES))
            for manifest in index["manifests"]:
                manifest["annotations"] = {NAME_KEY: name, TAG_KEY: name.rpartition(":")[2]}
            text = json.dumps(index).encode()
            entry.size = len(text)
            new.addfile(entry, io.BytesIO(text))
    beside.replace(path)


def _entries(layer: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        return tar.getmembers()


def _blob(tar: tarfile.TarFile, described: Mapping[str, Any]) -> bytes:
    algorithm, _, digest = str(described["digest"]).partition(":")
    return _content(tar, f"blobs/{algorithm}/{digest}")


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    where = os.fsdecode(tar.name or "the archive")
    try:
        entry = tar.getmember(name)
    except KeyError:
        raise BadArchive(f"{where}: no {name}: this is no OCI archive") from None
    file = tar.extractfile(entry)
    if file is None or entry.size > LARGEST_BYTES:
        raise BadArchive(f"{where}: {name} has {entry.size} bytes, more than {LARGEST_BYTES}")
    return file.read()
