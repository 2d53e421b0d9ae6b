"""Puts the image together: `python3 -m deploy.rootfs SOURCE TARGET`, in the first stage of deploy/Containerfile.

SOURCE has the installed packages; below TARGET come two trees, one for each layer: `base`, which changes with the base
image, and `own`, which changes with Fairlead. Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import compileall
import importlib.util
import json
import py_compile
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from deploy import bill, parts

USER = 65532  # the number that distroless images have made usual for "not root"
PACKAGES = "opt/fairlead"
LAUNCHER = "usr/bin/fairlead"
BILL = "usr/share/sbom/fairlead.cdx.json"
LICENCES = "usr/share/doc"
# Without `site`, PYTHON* variables and the user's directories: a shorter start, and only the image decides what runs.
LAUNCHER_TEXT = f"""#!/{parts.PYTHON} -IS
import sys

sys.path.append("/{PACKAGES}")

from fairlead.cli import main

main()
"""
PASSWD = f"root:x:0:0:root:/root:/sbin/nologin\nfairlead:x:{USER}:{USER}:fairlead:/nonexistent:/sbin/nologin\n"
GROUP = f"root:x:0:\nfairlead:x:{USER}:\n"
NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\n"
DIRECTORIES = {"root": 0o755, "run/fairlead": 0o755, "tmp": 0o1777, "etc/fairlead": 0o755}
# Of what pip installs: nothing that runs in the image.
DROPPED = ("bin", "**/__pycache__", "**/*.pyi", "**/*.pyx", "**/*.c", "**/*.h")


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        sys.stderr.write("usage: python3 -m deploy.rootfs SOURCE TARGET\n")
        return 2
    source, target = map(Path, arguments)
    try:
        put_together(source, target / "base", target / "own")
    except parts.PartMissing as missing:
        sys.stderr.write(f"deploy.rootfs: {missing}\n")
        return 1
    return 0


def put_together(source: Path, base: Path, own: Path) -> None:
    own_packages = own / PACKAGES
    shutil.copytree(source, own_packages)
    for pattern in DROPPED:
        for path in own_packages.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    parts.copy_interpreter(base, lean=True)
    # Libraries that a package needs are in the layer of the base too: they come from there.
    taken = _with(base, own_packages)
    taken += parts.copy_files(base)
    for file in bill.copyrights(taken):
        parts.copy(file, base / LICENCES / file.parent.name / file.name)
    _write(base / parts.packages() / "fairlead.pth", f"/{PACKAGES}\n")
    _write(base / "etc/passwd", PASSWD)
    _write(base / "etc/group", GROUP)
    _write(base / "etc/nsswitch.conf", NSSWITCH)
    for name, mode in DIRECTORIES.items():
        (base / name).mkdir(parents=True, exist_ok=True)
        (base / name).chmod(mode)
    _write(own / LAUNCHER, LAUNCHER_TEXT, 0o755)
    link_names(own, places(own_packages))
    _write(own / BILL, json.dumps(bill.make(own_packages, taken), indent=1) + "\n")
    for tree in (base, own):
        compile_tree(tree)


def _with(base: Path, packages: Path) -> list[Path]:
    """Copies the libraries of both trees into `base`."""
    beside = base / "packages"
    shutil.copytree(packages, beside, ignore=lambda _, names: [name for name in names if name.endswith(".py")])
    taken = parts.copy_libraries(base)
    shutil.rmtree(beside)
    return taken


def places(packages: Path) -> Mapping[str, tuple[str, ...]]:
    """The table of the package that is in the image, read without loading anything else of it."""
    spec = importlib.util.spec_from_file_location("names", packages / "fairlead" / "cli" / "names.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    table: Mapping[str, tuple[str, ...]] = module.PLACES
    return table


def link_names(root: Path, names: Mapping[str, tuple[str, ...]]) -> None:
    for place in names:
        link = root / place.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"/{LAUNCHER}")


def compile_tree(tree: Path) -> None:
    """Unchecked: layers change times, and a read-only root cannot repair stale byte code."""
    done = compileall.compile_dir(
        tree,
        maxlevels=50,
        quiet=1,
        force=True,  # byte code that is checked against a time would be stale in the image
        stripdir=str(tree),
        prependdir="/",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    if not done:
        raise parts.PartMissing(f"a module below {tree} cannot be compiled")


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
