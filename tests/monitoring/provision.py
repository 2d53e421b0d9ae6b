"""Prometheus and promtool for the tests: `python -m tests.monitoring.provision`.

Takes those on PATH, or unpacks Debian's package into a cache outside the work tree: no service is installed or started,
and root is not needed. Says what is missing otherwise; the tests are then skipped with that reason.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.toolchain import cache_dir

PACKAGE = "prometheus"
CACHE = cache_dir().parent / PACKAGE
HINT = "run: python -m tests.monitoring.provision"


class Tools(NamedTuple):
    prometheus: Path
    promtool: Path


def find() -> Tools | None:
    for directory in (None, CACHE / "usr" / "bin"):
        found = [shutil.which(name, path=directory and str(directory)) for name in Tools._fields]
        if all(found):
            return Tools(*(Path(str(path)) for path in found))
    return None


@functools.cache
def find_or_skip() -> Tools:
    """For tests: skips where there are none, except in CI on a machine that could have them."""
    import pytest  # here, because `make monitoring-test` provides the programs before pytest runs

    found = find()
    if found is None and os.environ.get("CI") == "true" and can_unpack():
        pytest.fail(f"CI must have what this test needs: Prometheus; {HINT}", pytrace=False)
    if found is None:
        pytest.skip(f"no Prometheus on this machine; {HINT}")
    return found


def can_unpack() -> bool:
    return all(shutil.which(name) for name in ("apt-get", "dpkg"))


def main() -> int:
    if find() is None and not can_unpack():
        print("no Prometheus on this machine: install one, with promtool, and put both on PATH")
        return 0
    if find() is None:
        unpack()
    print(f"prometheus: {find()}")
    return 0


def unpack() -> None:
    """Into a directory beside, then renamed: another run of the tests sees all of it or nothing."""
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as fresh:
        if not _download(fresh) and os.geteuid() == 0:
            subprocess.run(["apt-get", "update", "-qq"], check=False)
            _download(fresh)
        packages = list(Path(fresh).glob("*.deb"))
        if not packages:
            sys.exit(f"apt-get download {PACKAGE} failed: see above")
        subprocess.run(["dpkg", "-x", str(packages[0]), f"{fresh}/root"], check=True)
        shutil.rmtree(CACHE, ignore_errors=True)
        Path(fresh, "root").rename(CACHE)


def _download(into: str) -> bool:
    # As the present user: apt's own has no right to write there, and would warn of it.
    command = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=", PACKAGE]
    return subprocess.run(command, cwd=into, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
