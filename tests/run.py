"""`make test`: every test this machine can run, on all cores, with the coverage floors. Prints what it waits for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests import toolchain

ROOT = Path(__file__).resolve().parent.parent
# The rooms whose every branch must be shown: what the kubelet sees of us, and what decides.
FLOORS = {"model": 95, "policy": 95, "wire": 95, "kubelet": 95, "cluster": 95}


def main() -> int:
    began = time.monotonic()
    for stale in ROOT.glob(".coverage.*"):
        stale.unlink()
    env = {**os.environ, "COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml"), "HYPOTHESIS_PROFILE": "default"}
    _build_go()
    tests = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-n", str(os.cpu_count() or 1), *sys.argv[1:]]
    code = subprocess.call(tests, cwd=ROOT, env=env)
    if code or sys.argv[1:]:
        return code
    print("· coverage floors")
    subprocess.call([sys.executable, "-m", "coverage", "combine", "-q"], cwd=ROOT, env=env)
    failed = [room for room, floor in FLOORS.items() if _covered(room) < floor]
    for room in failed:
        report = [sys.executable, "-m", "coverage", "report", f"--include=src/fairlead/{room}/*"]
        subprocess.call(report, cwd=ROOT)
    print(f"· {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def _build_go() -> None:
    """Builds the Go programs first, with progress: a test would have to do it against its own time limit."""
    try:
        for name in toolchain.PROGRAMS:
            toolchain.build(name)
    except toolchain.ToolchainMissingError as missing:
        print(f"· without Go, {missing}: the tests against grpc-go and h2spec are skipped")


def _covered(room: str) -> float:
    report = [
        sys.executable,
        "-m",
        "coverage",
        "report",
        f"--include=src/fairlead/{room}/*",
        "--format=total",
        "--precision=1",
    ]
    text = subprocess.run(report, cwd=ROOT, check=False, capture_output=True, text=True).stdout.strip()
    percent = float(text or 0)
    print(f"  {room:8} {percent:5.1f} % of {FLOORS[room]} %")
    return percent


if __name__ == "__main__":
    sys.exit(main())
