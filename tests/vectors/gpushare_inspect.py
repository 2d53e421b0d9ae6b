"""What kubectl-inspect-gpushare printed for made-up nodes and pods: gpushare-device-plugin, commit 45fb8b8.

    python -m tests.vectors.gpushare_inspect FOLDER

packs the folder's recordings, one JSON file per case, into what `inspections` reads. Nothing is dropped.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.vectors.pack import _write
from tests.vectors.read import HERE, lines
from tests.vectors.types import Json, _Strict

FILE = HERE / "gpushare-inspect" / "cases.jsonl.gz"


class Objects(_Strict, frozen=True, kw_only=True):
    nodes: list[Json]
    pods: list[Json]


class Inputs(_Strict, frozen=True, kw_only=True):
    argv: list[str]
    api_objects: Objects


class Outputs(_Strict, frozen=True, kw_only=True):
    api_requests: list[Json]  # method, path, query, status
    exit: dict[str, int]
    stdout: list[str]  # lines; an empty last one is the end of the line before
    stderr: list[str]


class Inspection(_Strict, frozen=True, kw_only=True):
    file: str  # the recording's own name: 100-inspect-all
    peer: str
    case: str
    about: str
    inputs: Inputs
    outputs: Outputs


@functools.cache
def inspections() -> Mapping[str, Inspection]:
    return {case.file: case for case in lines(FILE, Inspection)}


def pack(folder: Path) -> None:
    cases = [{"file": file.stem, **json.loads(file.read_text())} for file in sorted(folder.glob("*-inspect-*.json"))]
    _write(FILE, cases)


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
