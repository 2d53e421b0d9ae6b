"""The images of a node, as one archive under the names that the suite asks for."""

from __future__ import annotations

import compileall
import io
import py_compile
import shutil
import tarfile
from pathlib import Path

from tests.e2e_node.places import ROOT
from tests.node import runtime
from tests.node.rig.images import Image, _busybox, _write
from tests.node.rig.needs import PACKAGES

REGISTRY = "registry.k8s.io"
PAUSE = f"{REGISTRY}/pause:3.10.2"
BUSYBOX = f"{REGISTRY}/e2e-test-images/busybox:1.37.0-1"
SAMPLE = f"{REGISTRY}/e2e-test-images/sample-device-plugin:1.7"

PLUGIN = ROOT / "examples" / "sample_device_plugin.py"
BROKEN = Path(__file__).parent / "broken.py"
HOME = "plugin"  # where the program is in the image


def make(state: Path, work: Path, *, with_broken: bool) -> list[Path]:
    """Writes an archive for nodes with the plugin, and one for a node with the broken one."""
    base = runtime.make(work)
    made = [state / "images.tar"]
    _archive(made[0], base, _program(work / "sound", PLUGIN), PLUGIN)
    if with_broken:
        made.append(state / "broken.tar")
        _archive(made[1], base, _program(work / "broken", PLUGIN, BROKEN), BROKEN)
    return made


def _archive(file: Path, base: Image, program: bytes, main: Path) -> None:
    layer = _busybox(PACKAGES["busybox-static"])
    env = {"PATH": "/usr/local/bin", "PYTHONPATH": f"/{runtime.PACKAGES}:/{HOME}", "PYTHONDONTWRITEBYTECODE": "1"}
    # Without `site`, and with everything compiled: the plugin has a second before the suite deletes its file.
    command = (f"/{runtime.PYTHON}", "-S", f"/{HOME}/{main.relative_to(ROOT)}")
    _write(
        file,
        [
            Image(PAUSE, (layer,), ("/bin/sleep", "1000000000")),
            Image(BUSYBOX, (layer,), ("/bin/sh",)),
            Image(SAMPLE, (*base.layers, program), command, env),
        ],
    )


def _program(place: Path, *programs: Path) -> bytes:
    for program in programs:
        copy = place / program.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(program, copy)
    # Unchecked: nobody changes a file in an image.
    compileall.compile_dir(place, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.add(place, HOME)
    return content.getvalue()
