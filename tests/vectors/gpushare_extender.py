"""What gpushare-scheduler-extender answered: AliyunContainerService/gpushare-scheduler-extender, commit c0b6141.

    python -m tests.vectors.gpushare_extender FOLDER

packs the folder's recordings, one JSON file per case, into what `extensions` reads. Logs are left out.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.vectors.pack import _write
from tests.vectors.read import HERE, lines
from tests.vectors.types import Json, _Strict

FILE = HERE / "gpushare-extender" / "cases.jsonl.gz"


class Objects(_Strict, frozen=True, kw_only=True):
    nodes: list[Json]
    pods: list[Json]
    configmaps: list[Json]


class Extension(_Strict, frozen=True, kw_only=True):
    file: str  # the recording's own name: 001-filter-simple
    about: str
    objects: Objects
    script: list[Json]  # what the API server refused
    steps: list[Json]  # requests with status and reply, and changes made on the API server
    final_pods: dict[str, Any]


@functools.cache
def extensions() -> Mapping[str, Extension]:
    return {case.file: case for case in lines(FILE, Extension)}


def pack(folder: Path) -> None:
    cases = []
    for file in sorted(folder.glob("*.json")):
        case = json.loads(file.read_text())
        inputs, outputs = case["inputs"], case["outputs"]
        cases.append(
            {
                "file": file.stem,
                "about": case["about"],
                "objects": inputs["api_objects"],
                "script": inputs.get("api_script") or [],
                "steps": outputs["steps"],
                "final_pods": outputs["final_pods"],
            }
        )
    _write(FILE, cases)


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
