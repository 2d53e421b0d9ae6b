"""Container images from a static busybox: an archive that containerd imports, written without a container engine.

An archive is a tar of a manifest, a config and one layer.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.node.rig.needs import PACKAGES
from tests.node.rig.places import IMAGE, PAUSE_IMAGE

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # Go's names for them
FOREVER = ("/bin/sleep", "1000000000")


def write(archive: Path) -> None:
    """Both images in one archive. They share the layer: a sandbox needs something that does nothing."""
    layer = _busybox(PACKAGES["busybox-static"])
    images = [_image(IMAGE, layer, ("/bin/sh",)), _image(PAUSE_IMAGE, layer, FOREVER)]
    with tarfile.open(archive, "w") as tar:
        _add(tar, "layer.tar", layer)
        for manifest, config in images:
            _add(tar, manifest["Config"], config)
        _add(tar, "manifest.json", json.dumps([manifest for manifest, _ in images]).encode())


def _image(name: str, layer: bytes, command: Sequence[str]) -> tuple[dict[str, Any], bytes]:
    config = json.dumps(
        {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Cmd": list(command), "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    digest = hashlib.sha256(config).hexdigest()
    return {"Config": f"{digest}.json", "RepoTags": [name], "Layers": ["layer.tar"]}, config


def _busybox(binary: Path) -> bytes:
    applets = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True).stdout.split()
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for directory, mode in (("bin", 0o755), ("etc", 0o755), ("proc", 0o755), ("dev", 0o755), ("tmp", 0o1777)):
            _add(tar, directory, b"", mode=mode, kind=tarfile.DIRTYPE)
        _add(tar, "bin/busybox", binary.read_bytes(), mode=0o755)
        for applet in sorted(set(applets) - {"busybox"}):
            _add(tar, f"bin/{applet}", b"", mode=0o777, kind=tarfile.SYMTYPE, target="busybox")
        _add(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
    return content.getvalue()


def _add(
    tar: tarfile.TarFile,
    name: str,
    content: bytes,
    *,
    mode: int = 0o644,
    kind: bytes = tarfile.REGTYPE,
    target: str = "",
) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.type, entry.linkname = len(content), mode, kind, target
    tar.addfile(entry, io.BytesIO(content))
