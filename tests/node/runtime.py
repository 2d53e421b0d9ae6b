"""The image that users deploy, for a node: that of deploy/Containerfile, built here with buildah.

There is one way only. Where the image cannot be built, the tests that need it fail and say why.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

from deploy import archive, image, rootfs
from deploy.parts import PYTHON, PartMissing

from tests.image import provision
from tests.node.rig.images import Image
from tests.node.rig.steps import NodeFailedError

__all__ = ["NAME", "PACKAGES", "PYTHON", "make"]

NAME = "localhost/fairlead-node/fairlead:1"
PACKAGES = rootfs.PACKAGES


def make(work: Path) -> Image:
    """Its layers and its config as they were built, under the node's name for it. Built once in a directory."""
    work.mkdir(exist_ok=True)
    ready = work / "ready"
    try:
        with (work / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not ready.exists():
                provision.install()
                ready.symlink_to(image.build(work / "image").archive)
        built = archive.read(ready)
    except (image.CannotBuild, PartMissing, archive.BadArchive) as error:
        raise NodeFailedError(f"the image cannot be built: {error}") from error
    run = built.run
    env = dict(pair.split("=", 1) for pair in run["Env"])
    return Image(NAME, built.layers, run.get("Cmd") or (), env, entrypoint=run["Entrypoint"], user=run["User"])
