"""`make test-pythons`: the unit tests on every other Python that Fairlead declares and this machine has.

Each has an environment of its own in `.cache`, made again when the pins or the project file change.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.run import ROOT

PINS = ROOT / "requirements" / "constraints.txt"
PROJECT = ROOT / "pyproject.toml"
# Of each property. The first Python plays as many as `make test`: CI's own run is traced, and plays fewer. The others
# show what they do otherwise, which needs few.
FIRST_EXAMPLES, EXAMPLES = "100", "20"
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


def main() -> int:
    failed = []
    examples = FIRST_EXAMPLES
    for version in declared():
        interpreter = find(version)
        if version == OWN:
            print(f"· Python {version}: `make test` runs on it")
        elif interpreter is None:
            print(f"· Python {version}: not on this machine, not tested")
        else:
            if _test(version, _environment(version, interpreter), examples):
                failed.append(version)
            examples = EXAMPLES
    if examples == FIRST_EXAMPLES and "CI" in os.environ and _test(OWN, sys.executable, examples):
        failed.append(OWN)
    if failed:
        print(f"· failed on Python {', '.join(failed)}")
    return 1 if failed else 0


def declared() -> list[str]:
    classifiers = tomllib.loads(PROJECT.read_text())["project"]["classifiers"]
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", classifier) for classifier in classifiers]
    return [match[1] for match in found if match]


def find(version: str) -> str | None:
    """An interpreter that starts. A shim of pyenv is on the path for versions that are not chosen, too."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))]
    for candidate in filter(None, candidates):
        asked = subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False)
        if asked.returncode == 0:
            return candidate
    return None


def _test(version: str, python: str, examples: str) -> int:
    print(f"· Python {version}, {examples} examples of each property", flush=True)
    workers = str(os.cpu_count() or 1)
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-n",
        workers,
        "--dist",
        "worksteal",
        "-p",
        "no:cacheprovider",
        "tests/unit",
    ]
    return subprocess.call(command, cwd=ROOT, env={**os.environ, "TEST_EXAMPLES": examples})


def _environment(version: str, interpreter: str) -> str:
    root = ROOT / ".cache" / f"python{version}"
    python, stamp = root / "bin" / "python", root / ".ready"
    content = hashlib.sha256(PINS.read_bytes() + PROJECT.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != content:
        subprocess.run([interpreter, "-m", "venv", "--clear", str(root)], check=True)
        install = ["-m", "pip", "install", "--disable-pip-version-check", "-q", "-c", str(PINS), "-e", ".[dev]"]
        subprocess.run([str(python), *install], cwd=ROOT, check=True)
        stamp.write_text(content)
    return str(python)


if __name__ == "__main__":
    sys.exit(main())
