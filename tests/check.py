"""`make check`: what holds before a change is shown to others: format, lint, types, layers and all unit tests.

The unit tests are run whole: choosing those of what changed saves little, and a wrong choice hides a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.run import ROOT, run_pytest

BIN = Path(sys.executable).parent
FIRST = (("ruff", "format", "--check", "."), ("ruff", "check", "."))
BESIDE = (("mypy",), ("lint-imports",))  # each uses one core for a while: they run beside the tests


def main() -> int:
    began = time.monotonic()
    failed = [" ".join(command) for command in FIRST if subprocess.call(_path(command), cwd=ROOT)]
    if not failed:
        started = {command: _start(command) for command in BESIDE}
        if run_pytest("-q", "-n", str(os.cpu_count() or 1), "--dist", "worksteal", "tests/unit"):
            failed.append("pytest tests/unit")
        for command, process in started.items():
            print(f"· {' '.join(command)}\n{process.communicate()[0].rstrip()}")
            if process.returncode:
                failed.append(" ".join(command))
    took = f"{time.monotonic() - began:.0f} s"
    print(f"· failed in {took}: {', '.join(failed)}" if failed else f"· all well in {took}")
    return 1 if failed else 0


def _start(command: tuple[str, ...]) -> subprocess.Popen[str]:
    return subprocess.Popen(_path(command), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _path(command: tuple[str, ...]) -> list[str]:
    return [str(BIN / command[0]), *command[1:]]


if __name__ == "__main__":
    sys.exit(main())
