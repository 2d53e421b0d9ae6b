"""Container images without a container engine: an archive that containerd imports, and the two images of the node.

An archive is a tar of a manifest, and for each image a config and its layers.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.node.rig.needs import PACKAGES
from tests.node.rig.places import BIN, CONTAINERD, IMAGE, PAUSE_IMAGE, STATE
from tests.node.rig.steps import NodeFailedError

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # Go's names for them
SPACE = "k8s.io"  # containerd's name for what belongs to a kubelet


@dataclass(frozen=True, slots=True)
class Image:
    name: str
    layers: tuple[bytes, ...]  # each a tar
    command: Sequence[str]
    env: dict[str, str] = field(default_factory=lambda: {"PATH": "/bin"})
    entrypoint: Sequence[str] = ()
    user: str = ""


def make_own() -> None:
    """Both images of the node. They share the layer: a sandbox needs something that does nothing."""
    layer = _busybox(PACKAGES["busybox-static"])
    load(Image(IMAGE, (layer,), ("/bin/sh",)), Image(PAUSE_IMAGE, (layer,), ("/bin/sleep", "1000000000")))


def load(*images: Image) -> None:
    """Hands them to containerd."""
    archive = STATE / "images.tar"
    _write(archive, images)
    command = [str(BIN / "ctr"), "-a", str(CONTAINERD), "-n", SPACE, "images", "import", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    archive.unlink()
    if done.returncode != 0:
        raise NodeFailedError(f"importing images failed: {done.stderr.strip()}")


def add(
    tar: tarfile.TarFile,
    name: str,
    content: bytes = b"",
    *,
    mode: int = 0o644,
    kind: bytes = tarfile.REGTYPE,
    target: str = "",
) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.type, entry.linkname = len(content), mode, kind, target
    tar.addfile(entry, io.BytesIO(content))


def _write(archive: Path, images: Sequence[Image]) -> None:
    manifests: list[dict[str, object]] = []
    files: dict[str, bytes] = {}
    for image in images:
        digests = [hashlib.sha256(layer).hexdigest() for layer in image.layers]
        config = {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {
                "User": image.user,
                "Env": [f"{key}={value}" for key, value in image.env.items()],
                "Entrypoint": list(image.entrypoint),
                "Cmd": list(image.command),
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }
        text = json.dumps(config).encode()
        name = f"{hashlib.sha256(text).hexdigest()}.json"
        files |= {name: text, **{f"{digest}.tar": layer for digest, layer in zip(digests, image.layers, strict=True)}}
        layers = [f"{digest}.tar" for digest in digests]
        manifests.append({"Config": name, "RepoTags": [image.name], "Layers": layers})
    with tarfile.open(archive, "w") as tar:
        for name, content in files.items():
            add(tar, name, content)
        add(tar, "manifest.json", json.dumps(manifests).encode())


def _busybox(binary: Path) -> bytes:
    applets = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True).stdout.split()
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for directory, mode in (("bin", 0o755), ("etc", 0o755), ("proc", 0o755), ("dev", 0o755), ("tmp", 0o1777)):
            add(tar, directory, mode=mode, kind=tarfile.DIRTYPE)
        add(tar, "bin/busybox", binary.read_bytes(), mode=0o755)
        for applet in sorted(set(applets) - {"busybox"}):
            add(tar, f"bin/{applet}", mode=0o777, kind=tarfile.SYMTYPE, target="busybox")
        add(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
    return content.getvalue()
