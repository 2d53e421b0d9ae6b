"""`python -m tests.again ARGUMENTS`: pytest with several workers; the few tests that failed are played again, alone.

For suites that judge by time and still share two cores. A test that fails alone too fails the run. One that passes
alone is named at the end: it is a test to mend, not a regression.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.run import ROOT

AGAIN_MAX = 5  # more than that is no accident
FAILED = 1  # pytest's exit code for tests that failed; any other means that the run itself did


def main(words: list[str]) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        code = _pytest(*words, f"--junit-xml={report}")
        names = failures(report) if code == FAILED else []
    if not 0 < len(names) <= AGAIN_MAX:
        return code
    print(f"\n· played again, alone: {', '.join(names)}", flush=True)
    code = _pytest("-m", words[words.index("-m") + 1], *names)
    if code == 0:
        print(f"\n· failed beside others, and passed alone: {', '.join(names)}", flush=True)
    return code


def failures(report: Path) -> list[str]:
    """The tests that failed or broke, as pytest names them."""
    found = ET.parse(report).iter("testcase")
    return [_name(case) for case in found if case.find("failure") is not None or case.find("error") is not None]


def _name(case: ET.Element) -> str:
    """A report has the module and the class as one dotted word."""
    parts = case.get("classname", "").split(".")
    for end in range(len(parts), 0, -1):
        file = Path(*parts[:end]).with_suffix(".py")
        if (ROOT / file).is_file():
            return "::".join((str(file), *parts[end:], case.get("name", "")))
    return case.get("classname", "")


def _pytest(*words: str) -> int:
    return subprocess.call([sys.executable, "-m", "pytest", *words], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
