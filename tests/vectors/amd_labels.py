"""What AMD's node labeller wrote for made-up machines, and what functions of its packages answered: commit ed76468.

    python -m tests.vectors.amd_labels FOLDER

packs the folder's recordings of labels, one JSON file per case, into what `labellings` reads. Logs are left out.
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

FOLDER = HERE / "amd-labels"
FUNCTIONS = ("071-package-topology-maps", "072-package-firmware-text", "073-package-family-names")


class Libdrm(_Strict, frozen=True, kw_only=True):
    """What libdrm said of a card. A firmware block is a number, a version and a feature version; others fail."""

    family: int
    firmware: list[tuple[int, int, int]]
    marketing_name: str


class Sysfs(_Strict, frozen=True, kw_only=True):
    kfd_fixture: str
    driver: bool = True
    pci: list[dict[str, Any]] = []
    xcp: list[Json] = []


class Inputs(_Strict, frozen=True, kw_only=True):
    argv: list[str]
    env: dict[str, str]
    node_labels_before: dict[str, str]
    sysfs: Sysfs
    libdrm: dict[str, Libdrm] = {}


class Outputs(_Strict, frozen=True, kw_only=True):
    exit: dict[str, int]
    labels_after: dict[str, str]
    reads: list[str]
    writes: list[Json]
    steps: list[Json] = []


class Labelling(_Strict, frozen=True, kw_only=True):
    case: str
    peer: str
    about: str
    inputs: Inputs
    outputs: Outputs


@functools.cache
def labellings() -> Mapping[str, Labelling]:
    return {case.case: case for case in lines(FOLDER / "cases.jsonl.gz", Labelling)}


@functools.cache
def functions() -> Mapping[str, Json]:
    """By the name of the recording: its inputs and outputs."""
    return {case["case"]: case for case in lines(FOLDER / "functions.jsonl.gz", dict[str, Any])}


def pack(folder: Path) -> None:
    cases = [json.loads(file.read_text()) for file in sorted(folder.glob("*-label-*.json"))]
    for case in cases:
        case["outputs"].pop("log")
    _write(FOLDER / "cases.jsonl.gz", cases)
    _write(FOLDER / "functions.jsonl.gz", [json.loads((folder / f"{name}.json").read_text()) for name in FUNCTIONS])


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
