"""`make test`: every test this machine can run. `make coverage`: the same, traced, and each room held to its floor.

What is not an option of this program goes to pytest. `--coverage` traces and keeps the data; `--floors` judges what was
kept.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests import toolchain

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "fairlead"
# The least share of lines and branches that the tests execute, in percent. A floor rises, and never falls.
FLOORS = {
    "app": 95,
    "backends": 95,
    "cli": 77,  # the demo on a terminal, and what conformance draws, are not traced
    "cluster": 95,
    "config": 95,
    "dialects": 95,
    "engine": 95,
    "fronts": 95,
    "inject": 95,
    "kit": 95,
    "model": 95,
    "observe": 95,
    "policy": 95,
    "programs": 95,
    "scheduled": 95,
    "scheduler": 95,
    "standin": 67,  # the conformance scenarios are played by CI, untraced
    "testing": 95,
    "wire": 95,
}
# Tests that start processes spend most of their time waiting for them: two workers for a core keep the core busy.
WORKERS_PER_CORE = 2
TRACED = {"COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml")}


def main(arguments: Sequence[str]) -> int:
    began = time.monotonic()
    coverage, floors = "--coverage" in arguments, "--floors" in arguments
    chosen = [argument for argument in arguments if argument not in {"--coverage", "--floors"}]
    code = 0
    if coverage or not floors:
        _build_go()
        workers = WORKERS_PER_CORE * (os.cpu_count() or 1)
        code = run_pytest("-n", str(workers), "--dist", "worksteal", "--durations=25", *chosen, coverage=coverage)
    if floors and not code:
        code = _judge()
    print(f"· {time.monotonic() - began:.0f} s")
    return code


def run_pytest(*arguments: str, coverage: bool = False) -> int:
    tracer = ("-m", "coverage", "run") if coverage else ()
    env = os.environ | {"HYPOTHESIS_PROFILE": "default"} | (TRACED if coverage else {})
    return subprocess.call([sys.executable, *tracer, "-m", "pytest", *arguments], cwd=ROOT, env=env)


def _build_go() -> None:
    """Builds the Go programs first, with progress: a test would have to do it against its own time limit."""
    try:
        for name in toolchain.PROGRAMS:
            toolchain.build(name)
    except toolchain.ToolchainMissingError as missing:
        print(f"· without Go, {missing}: the tests against grpc-go and h2spec are skipped")


def _judge() -> int:
    print("· coverage floors")
    report = ROOT / ".coverage.json"
    for command in (["combine", "-q"], ["json", "-q", "-o", str(report)]):
        subprocess.run([sys.executable, "-m", "coverage", *command], cwd=ROOT, check=True)
    covered = shares(json.loads(report.read_text())["files"])
    report.unlink()
    low = [room for room, floor in FLOORS.items() if covered.get(room, 0.0) < floor]
    for room, floor in FLOORS.items():
        print(f"  {room:10} {covered.get(room, 0.0):5.1f} %, at least {floor} %")
    for room in low:
        command = ["report", f"--include=src/fairlead/{room}/*"]
        subprocess.call([sys.executable, "-m", "coverage", *command], cwd=ROOT)
    return 1 if low else 0


def rooms() -> list[str]:
    return sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def shares(files: dict[str, dict[str, dict[str, int]]]) -> dict[str, float]:
    """Percent of each room, lines and branches together, out of coverage's JSON report."""
    executed, all_of_it = Counter[str](), Counter[str]()
    for name, file in files.items():
        summary, room = file["summary"], _room(Path(name))
        executed[room] += summary["covered_lines"] + summary["covered_branches"]
        all_of_it[room] += summary["num_statements"] + summary["num_branches"]
    return {room: 100 * executed[room] / total for room, total in all_of_it.items() if total}


def _room(path: Path) -> str:
    return (ROOT / path).relative_to(PACKAGE).parts[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
