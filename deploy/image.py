"""`python -m deploy.image`: builds the image of deploy/Containerfile with buildah, writes it as an archive, checks it.

Needs root, buildah and nothing that runs beside it: no engine, no registry. Without `--base` it makes a base of the
Python that runs it (deploy/base.py); with one, buildah pulls that.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy import archive, base, parts, verify
from deploy.parts import PartMissing

ROOT = Path(__file__).resolve().parent.parent
FILE = "deploy/Containerfile"
OUT = ROOT / "build" / "image"
BUILDAH = "buildah"
PACKAGES = ("buildah", "binutils")  # Debian's names of what a build on a base of this machine needs
LOCAL = f"localhost/python:{platform.python_version()}"
FAILED, CANNOT = 1, 3


class CannotBuild(Exception):
    """This machine lacks something, or the build failed."""


@dataclass(frozen=True, slots=True)
class Built:
    archive: Path
    bill: Path
    name: str


def version() -> str:
    found: dict[str, str] = {}
    exec((ROOT / "src/fairlead/_version.py").read_text(), found)  # noqa: S102 - one line of ours, without the package
    return found["__version__"]


def lacking() -> str:
    """Why this machine cannot build, or nothing."""
    if sys.platform != "linux":
        return f"an image is built on Linux, and this is {sys.platform}"
    if os.geteuid() != 0:
        return "buildah without an engine needs root here"
    missing = [tool for tool in (BUILDAH, base.STRIP) if shutil.which(tool) is None]
    return f"{', '.join(missing)}: not on this machine. Debian: apt-get install {' '.join(PACKAGES)}" if missing else ""


@dataclass(frozen=True, slots=True)
class Revision:
    """What the image says of its sources. The time of the commit is the time of everything in it."""

    name: str
    time: str

    @staticmethod
    def here() -> Revision:
        dirty = "-dirty" if _git("status", "--porcelain") else ""
        return Revision(_git("rev-parse", "HEAD") + dirty, _git("log", "-1", "--format=%ct") or "0")


def build(out: Path, *, given_base: str = "", source: str = "", revision: Revision | None = None) -> Built:
    """Leaves the archive in `out`; removes everything else that it made."""
    if reason := lacking():
        raise CannotBuild(reason)
    out.mkdir(parents=True, exist_ok=True)
    made = Built(out / "fairlead.oci.tar", out / "fairlead.cdx.json", f"localhost/fairlead:{version()}")
    revision = revision or Revision.here()
    told = {
        "BASE": given_base or LOCAL,
        "VERSION": version(),
        "REVISION": revision.name,
        "SOURCE": source,
    }
    with tempfile.TemporaryDirectory(prefix="fairlead-image-") as directory:
        work = Path(directory)
        buildah = _Buildah(work / "storage")
        if not given_base:
            base.make(work / "base")
            (work / "Basefile").write_text("FROM scratch\nCOPY . /\nENV PATH=/usr/local/bin\n")
            buildah("bud", "-q", "-f", str(work / "Basefile"), "-t", LOCAL, str(work / "base"))
        how = ["--isolation=chroot", "--layers", "--identity-label=false", f"--timestamp={revision.time}"]
        secret = f"--secret=id=pip,src={_pip_conf(work)}"
        arguments = [f"--build-arg={key}={value}" for key, value in told.items()]
        buildah("bud", *how, secret, *arguments, "-f", FILE, "-t", made.name, str(ROOT))
        made.archive.unlink(missing_ok=True)
        buildah("push", "-q", made.name, f"oci-archive:{made.archive}")
    archive.set_name(made.archive, made.name)
    return made


@dataclass(frozen=True, slots=True)
class _Buildah:
    """With a storage of its own: nothing of this machine's images is seen or changed."""

    storage: Path

    def __call__(self, *arguments: str) -> None:
        places = ["--root", f"{self.storage}/root", "--runroot", f"{self.storage}/run", "--storage-driver", "vfs"]
        done = subprocess.run([BUILDAH, *places, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-30:])
            raise CannotBuild(f"buildah {arguments[0]} ended with {done.returncode}:\n{tail}")


def _pip_conf(work: Path) -> Path:
    """What pip is told on this machine: an index of its own reaches the build, and no layer."""
    asked = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    pairs = dict(line.partition("=")[::2] for line in listed.splitlines() if "=" in line)
    keys = ("index-url", "extra-index-url", "trusted-host", "timeout", "default-timeout", "proxy")
    values = {name.rpartition(".")[2]: value.strip("'\"") for name, value in pairs.items()}
    text = "[global]\n" + "".join(f"{key} = {values[key]}\n" for key in keys if key in values)
    if values.get("cert") in parts.BUNDLES:  # certificates of this machine: a base made of it has them here
        text += f"cert = {parts.BUNDLES[0]}\n"
    path = work / "pip.conf"
    path.write_text(text)
    return path


def _git(*arguments: str) -> str:
    """Nothing, where there is no repository."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.image", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--out", type=Path, default=OUT, help="where the archive goes. Default: build/image")
    parser.add_argument("--base", default="", help="the base image. Default: one made of the Python that runs this")
    parser.add_argument("--source", default="", help="the address of the sources, for the image's label")
    given = parser.parse_args(arguments)
    try:
        built = build(given.out, given_base=given.base, source=given.source)
        report = verify.check(built.archive, built.bill, given.base or LOCAL, version())
    except (CannotBuild, PartMissing, archive.BadArchive) as error:
        print(f"deploy.image: {error}", file=sys.stderr)
        return CANNOT
    print(report.text(built.archive, built.name))
    for fault in report.faults:
        print(f"deploy.image: {fault}", file=sys.stderr)
    return FAILED if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
