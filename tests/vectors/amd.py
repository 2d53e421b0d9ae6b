"""What AMD's device plugin answered on made-up machines, and what its allocator did as a package: commit ed76468.

    python -m tests.vectors.amd FOLDER

packs the folder's recordings of the plugin, one JSON file per case, into what `amd` reads. Logs and times are left out.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.vectors.pack import _write
from tests.vectors.read import HERE, lines
from tests.vectors.types import Json

FILE = HERE / "amd" / "cases.jsonl.gz"
ALLOCATOR = "070-allocator-mi308-as-8x4"


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    peer: str
    case: str  # 001-mi210-single
    about: str
    inputs: Json
    outputs: Json


@functools.cache
def amd() -> Mapping[str, Case]:
    """By the recording's own name."""
    return {case.case: case for case in lines(FILE, Case)}


def main(folder: str) -> None:
    cases = [json.loads(file.read_text()) for file in sorted(Path(folder).glob("0[01237]*.json"))]
    taken = [case for case in cases if case["case"] == ALLOCATOR or case["case"] < "05"]
    for case in taken:
        case["outputs"].pop("log", None)
        for resource in case["outputs"].get("resources", {}).values():
            for answer in resource["answers"]:
                answer.pop("seconds", None)
    _write(FILE, taken)


if __name__ == "__main__":
    main(sys.argv[1])
